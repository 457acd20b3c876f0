"""The experiments of the five papers, and studies beside them."""
