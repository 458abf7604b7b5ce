"""Executions that a client drives by commands: every join, every way to fail, every end."""

from tests.build import chain, diamond, graph
from tests.golden.files import Recorded
from tests.golden.recording import Outside, case, from_outside

# --- Joins -----------------------------------------------------------------------------------------------------------


@case("ALL_SUCCESS: the join passes when every branch has come in")
def join_all_success() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a", "b", "c", "after")

    return from_outside(diamond("a", "b", "c", join={"policy": "ALL_SUCCESS"}), script)


@case("ALL_SUCCESS: one branch fails, and with it the execution; a branch at work is interrupted")
def join_all_success_fails() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "b")
        await outside.fail("a")

    return from_outside(diamond("a", "b", "c", join={"policy": "ALL_SUCCESS"}), script)


@case("ANY_SUCCESS: the first branch passes the join, the others are cancelled one by one")
def join_any_success() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "b", workerId="ruby-2")
        await outside.fail("c")
        await outside.succeed("a", "after")

    return from_outside(diamond("a", "b", "c", "d", join={"policy": "ANY_SUCCESS"}), script)


@case("ANY_SUCCESS with losers left alone: they go on behind the join")
def join_any_success_leaves_losers() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "b")
        await outside.succeed("a")
        await outside.do("SucceedNode", "b", output={"late": True})
        await outside.succeed("after", "c")

    return from_outside(diamond("a", "b", "c", join={"policy": "ANY_SUCCESS", "losers": "leave"}), script)


@case("ANY_SUCCESS: every branch fails, and with the last one the execution")
def join_any_success_fails() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")
        await outside.fail("b")

    return from_outside(diamond("a", "b", join={"policy": "ANY_SUCCESS"}), script)


@case("ALL_DONE: the join passes though a branch failed")
def join_all_done() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")
        await outside.succeed("b", "after")

    return from_outside(diamond("a", "b", join={"policy": "ALL_DONE"}), script)


@case("CUSTOM: two of three are enough")
def join_custom_required() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("c")
        await outside.succeed("a", "b", "after")

    return from_outside(diamond("a", "b", "c", join={"policy": "CUSTOM", "required": 2}), script)


@case("CUSTOM: too many have failed for two of three")
def join_custom_required_fails() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("c")
        await outside.fail("a")

    return from_outside(diamond("a", "b", "c", join={"policy": "CUSTOM", "required": 2}), script)


@case("CUSTOM: a majority, by the name of its predicate")
def join_custom_majority() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a", "b", "after")

    return from_outside(diamond("a", "b", "c", join={"policy": "CUSTOM", "predicate": "majority"}), script)


@case("a fork in a fork, their joins, and a branch that ends at the outer one")
def nested_forks() -> Recorded:
    drawn = graph(
        "s:Start f:Fork a g:Fork b c i:Join d j:Join z:Success",
        "s>f f>a f>g g>b g>c b>i c>i i>d d>j a>j j>z",
        i={"policy": "ANY_SUCCESS"},
    )

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("b", "d", "a")

    return from_outside(drawn, script)


# --- Failures and ends -----------------------------------------------------------------------------------------------


@case("failPolicy branch: nothing absorbs it, so the execution fails")
def fail_policy_branch() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")

    return from_outside(chain("a", "b"), script)


@case("failPolicy stop: the execution fails whatever joins lie ahead")
def fail_policy_stop() -> Recorded:
    drawn = graph(
        "s:Start f:Fork a b j:Join z:Success",
        "s>f f>a f>b a>j b>j j>z",
        a={"failPolicy": "stop"},
        j={"policy": "ALL_DONE"},
    )

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "b", workerId="ruby-1")
        await outside.fail("a")

    return from_outside(drawn, script)


@case("failPolicy isolate: what depends on it is skipped, the execution completes")
def fail_policy_isolate() -> Recorded:
    drawn = graph(
        "s:Start f:Fork a a2 b j:Join z:Success",
        "s>f f>a a>a2 a2>j f>b b>j j>z",
        a={"failPolicy": "isolate"},
        j={"policy": "ALL_DONE"},
    )

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")
        await outside.succeed("b")

    return from_outside(drawn, script)


@case("an edge on failure leads on from a failed node; the way on success is dropped")
def edge_on_failure() -> Recorded:
    drawn = graph("s:Start a ok repair j:Join z:Success", "s>a a>ok a>repair:failure ok>j repair>j j>z")

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")
        await outside.succeed("repair")

    return from_outside(drawn, script)


@case("an edge that is always followed: tidying up after success")
def edge_always() -> Recorded:
    drawn = graph("s:Start a tidy z:Success", "s>a a>tidy:always tidy>z")

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a", "tidy")

    return from_outside(drawn, script)


@case("the Failed end is reached by its edge")
def end_failed() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")

    return from_outside(graph("s:Start a z:Success x:Failed", "s>a a>z a>x"), script)


@case("the Canceled end is reached by its edge")
def end_canceled() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a")

    return from_outside(graph("s:Start a y:Canceled", "s>a a>y"), script)


@case("a branch of two fails at its first node: the second is skipped, a join that can do without absorbs it")
def skip_after_failure() -> Recorded:
    drawn = graph(
        "s:Start f:Fork a a2 b j:Join z:Success", "s>f f>a a>a2 a2>j f>b b>j j>z", j={"policy": "ANY_SUCCESS"}
    )

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a")
        await outside.succeed("b")

    return from_outside(drawn, script)


@case("one node is cancelled, not the execution: what lies behind it is skipped, a join absorbs it")
def cancel_one_node() -> Recorded:
    drawn = graph(
        "s:Start f:Fork a a2 b j:Join z:Success", "s>f f>a a>a2 a2>j f>b b>j j>z", j={"policy": "ANY_SUCCESS"}
    )

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "a", workerId="ruby-1")
        await outside.cancel_node("a", "takes too long")
        await outside.succeed("b")

    return from_outside(drawn, script)


@case("one node is cancelled, and an edge follows that")
def edge_on_cancel() -> Recorded:
    drawn = graph("s:Start a ok instead j:Join z:Success", "s>a a>ok a>instead:cancel ok>j instead>j j>z")

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.cancel_node("a", "not today")
        await outside.succeed("instead")

    return from_outside(drawn, script)


@case("one node is cancelled, and the execution fails of it")
def cancel_one_node_fails() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.cancel_node("a", None)

    return from_outside(chain("a", "b"), script)
