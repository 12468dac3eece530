"""`python -m deploy.grafana`: regenerate the dashboards' JSON."""

from pathlib import Path

from deploy.grafana.boards import boards

FOLDER = Path(__file__).parent / "dashboards"

if __name__ == "__main__":
    for name, text in boards().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}")
