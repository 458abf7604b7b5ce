"""One task for each item of a list, several at once, and a task that brings the results together.

The list comes from a task, so how many rounds there are is known only when the flow runs.
"""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from pyoco.core.context import Context

from pyoco_server import Engine
from pyoco_server.flows.flow_yaml import read_flow_yaml


def list_pages(count: int) -> list[int]:
    """Find out what there is to do."""
    return list(range(1, count + 1))


def count_words(ctx: Context) -> int:
    """One round: ``ctx.get_var`` has the item, under the name the loop gives it."""
    page: int = ctx.get_var("page")
    words = page * 100
    ctx.scratch[f"page {page}"] = words  # each round has a key of its own, so rounds do not get in each other's way
    return words


def total(ctx: Context) -> int:
    """Runs when all rounds are done."""
    return sum(words for key, words in ctx.scratch.items() if key.startswith("page "))


flow = read_flow_yaml(
    f"""
version: 1
flow:
  graph: |
    list_pages
    >> foreach(over="$ctx.results.list_pages", item=page, parallel=4) {{ count_words }}
    >> total
  defaults: {{count: 10}}
tasks:
  list_pages: {{callable: "{__name__}:list_pages"}}
  count_words: {{callable: "{__name__}:count_words"}}
  total: {{callable: "{__name__}:total"}}
""",
    name="fan-out",
)

if __name__ == "__main__":
    with Engine() as engine:
        print(engine.run(flow, {"count": 20}).results["total"])
