"""``python -m experiments.papers``: the papers and their experiments."""

from experiments.papers import catalogue


def main() -> None:
    """Print the command of every paper, and the options of its experiments."""
    for name, module in catalogue.PAPERS.items():
        print(f"python -m {module}    {catalogue.paper(name).contents()}")


if __name__ == "__main__":
    main()
