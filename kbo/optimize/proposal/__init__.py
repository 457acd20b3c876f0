"""From what is known to the parameters of the next trial: the search begins, and the strategies are asked."""
