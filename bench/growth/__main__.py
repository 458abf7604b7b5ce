"""``python -m bench.growth``: the cost of a run as there is more of something, as tables and plots."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.command import Command, prepare
from bench.growth import in_flight, nodes, shards, stored_runs
from bench.growth.curves import Plot, table
from bench.plots import write_plots

COMMAND = Command[Plot](
    "python -m bench.growth",
    __doc__,
    {
        "in-flight": in_flight.together,
        "at-work": in_flight.at_work,
        "nodes": nodes.plots,
        "stored": stored_runs.plots,
        "shards": shards.plots,
    },
    "plots",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables and draw the plots."""
    parser = COMMAND.parser()
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help="where to draw them as SVG")
    arguments = parser.parse_args(argv)

    def show(plots: Sequence[Plot]) -> None:
        print("\n\n".join(table(plot) for plot in plots))
        if arguments.plots is not None:
            write_plots(plots, arguments.plots)

    prepare()
    return COMMAND.run(arguments, show)


if __name__ == "__main__":
    sys.exit(main())
