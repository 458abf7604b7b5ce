"""Example flows for screenshots: a report, an import, a training with rounds, a refund to approve."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import asyncio
import linecache
from typing import Any

from pyoco import Flow
from pyoco.core.models import Task
from pyoco.dsl.syntax import Parallel, TaskWrapper

from pyoco_server import options, wait

SHOP = "shop/flows.py"
REGIONS = ("tokyo", "osaka", "nagoya", "sapporo", "fukuoka")


def _takes(name: str, seconds: float, result: Any = None) -> TaskWrapper:
    async def work(ctx: Any) -> Any:  # noqa: ARG001 how pyoco calls it
        await asyncio.sleep(seconds)
        return result

    return TaskWrapper(Task(func=work, name=name))


_tries = iter(range(1, 1_000))


async def _rate(ctx: Any) -> float:
    await asyncio.sleep(0.2)
    if next(_tries) % 3:
        raise ConnectionError("rates.example: connection reset by peer")
    ctx.progress(100, "got the rate")
    return 157.4


async def _copy(ctx: Any) -> None:
    ctx.progress(62, "3.1 of 5.0 GB copied")
    await asyncio.sleep(600)


def _check(ctx: Any) -> int:  # noqa: ARG001 how pyoco calls it
    rows = [{"sku": "A-103", "price": "1200"}, {"sku": "A-104", "price": "1,980"}]
    return sum(map(_price, rows))


def _price(row: dict[str, str]) -> int:
    return int(row["price"])


def _take(ctx: Any) -> Any:
    return ctx.results["approve"]


def _pretend(*functions: Any) -> None:
    """Let tracebacks name a file of the example team, not the path of this one."""
    linecache.cache[SHOP] = (0, None, linecache.getlines(__file__), SHOP)
    for function in functions:
        function.__code__ = function.__code__.replace(co_filename=SHOP)


_pretend(_check, _price, _rate)

report = (
    Flow("monthly-report")
    >> _takes("orders", 0.3, [{"month": "2026-10", "amount": 1_204_500}])
    >> Parallel(
        [
            _takes("revenue", 0.4, 1_204_500),
            options(TaskWrapper(Task(func=_rate, name="exchange_rate")), retries=4, backoff=0.4),
            _takes("returns", 0.6, 31_200),
        ]
    )
    >> _takes("report", 0.2, "1,204,500 JPY are 7,652.48 USD")
)
orders = (
    Flow("import-orders")
    >> _takes("list_files", 0.2, list(REGIONS))
    >> Parallel(
        [_takes(f"import_{region}", 0.2 + at / 10, {"rows": 4_000 + at * 731}) for at, region in enumerate(REGIONS)]
    )
    >> _takes("merge", 0.3, {"rows": 27_310})
    >> _takes("notify", 0.1)
)
catalogue = (
    Flow("sync-catalogue")
    >> _takes("download", 0.2, {"bytes": 182_331})
    >> TaskWrapper(Task(func=_check, name="check_prices"))
    >> _takes("publish_prices", 0.1)
)
backup = (
    Flow("nightly-backup") >> _takes("freeze", 0.1) >> TaskWrapper(Task(func=_copy, name="copy")) >> _takes("thaw", 0.1)
)
refund = (
    Flow("refund")
    >> _takes("find_order", 0.1, {"order": "A-20417", "amount": 12_800})
    >> wait(
        "approve",
        prompt={
            "question": "Refund 12,800 JPY for order A-20417?",
            "customer": "since 2021, two refunds so far",
            "schema": {
                "type": "object",
                "required": ["decision", "amount"],
                "properties": {
                    "decision": {"type": "string", "enum": ["refund", "voucher", "refuse"], "title": "Decision"},
                    "amount": {"type": "integer", "title": "Amount (JPY)"},
                    "notify": {"type": "boolean", "title": "Notify the customer"},
                },
            },
        },
    )
    >> TaskWrapper(Task(func=_take, name="pay"))
    >> _takes("write_mail", 0.1)
)
training = Flow("train-model") >> _takes("load", 0.2, 48_210) >> (_takes("epoch", 0.2, 0.93) >> _takes("score", 0.1))[4]
tiles = Flow("render-tiles") >> _takes("plan", 0.1) >> Parallel([_takes(f"tile_{n:03d}", 0.05) for n in range(496)])
