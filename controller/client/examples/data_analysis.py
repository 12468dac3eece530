"""Data analysis: pandas in a sandbox reads your table, and you get the numbers and the chart.

    make images ARGS=data    # once: paddock/data:1 has numpy, pandas and matplotlib
    python data_analysis.py [sales.csv]

The code may come from a model: it sees the table that you uploaded, and has no network to send it anywhere.
"""

import sys
from pathlib import Path

from paddock import Paddock

SAMPLE = "city,year,sales\nOslo,2024,10\nOslo,2025,14\nLima,2024,30\nLima,2025,24\n"

ANALYSIS = """
import pandas

table = pandas.read_csv("sales.csv")
by_city = table.pivot_table(index="year", columns="city", values="sales", aggfunc="sum")
by_city.plot(kind="bar").figure.savefig("chart.png")
growth = by_city.iloc[-1] / by_city.iloc[0] - 1
growth.map("{:+.0%}".format).to_dict()
"""


def analyse(paddock: Paddock, table: str, chart: Path) -> str:
    """Return the growth of each city, and write the chart."""
    # pandas and matplotlib want more memory than a shell script.
    with paddock.sandboxes.create(image="paddock/data:1", memory="512Mi", lifetime=600) as sandbox:
        sandbox.files.write("sales.csv", table)  # relative paths start where the code runs
        answer = sandbox.run_code(ANALYSIS, timeout=120, check=True)
        chart.write_bytes(sandbox.files.read_bytes("chart.png"))
        return answer.text  # the value of the last expression, as in a notebook


if __name__ == "__main__":
    table = Path(sys.argv[1]).read_text() if sys.argv[1:] else SAMPLE
    with Paddock() as paddock:
        print(analyse(paddock, table, Path("chart.png")))
