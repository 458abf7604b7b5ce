"""The list of runs as pages that are loaded and dropped: the visible rows are always a part of the true list."""

import pytest

from tests.dashboard.conftest import Look

MOST_HELD = 4_000
STORY = """async ([seed, runs, steps, filtered]) => {
  const { Pages, PAGE } = await import("/static/views/runs/pages.js");
  let state = seed;
  const chance = (below) => (state = (state * 48_271) % 2_147_483_647) % Math.max(1, below);
  const before = (one, other) =>
    one.submitted_at !== other.submitted_at ? one.submitted_at > other.submitted_at : one.run_id > other.run_id;
  const all = [];
  const born = () => {
    const run_id = `r${String(all.length).padStart(7, "0")}`;
    const run = { run_id, submitted_at: all.length >> 1, status: "RUNNING", version: 1, updated_at: 1 };
    all.push(run);
    return run;
  };
  const fits = (run) => !filtered || run.status === "RUNNING";
  const truth = () => all.filter(fits).reverse();
  while (all.length < runs) born();

  const pages = new Pages();
  const change = (run) => pages.take({ ...run }, fits(run));
  function answer({ page, fromEnd }) {
    const list = truth();
    if (fromEnd) return pages.fillEnd(page, list.slice(-PAGE).map((run) => ({ ...run })));
    const cursor = page.from && JSON.parse(page.from);
    const from = cursor ? list.findIndex((run) => before(cursor, run)) : 0;
    const part = from < 0 ? [] : list.slice(from, from + PAGE);
    const next = from >= 0 && from + PAGE < list.length ? JSON.stringify(part.at(-1)) : null;
    pages.fill(page, part.map((run) => ({ ...run })), next);
  }
  const found = { asked: 0, held: 0, wrong: [] };
  function look(first) {
    let wanted;
    do {
      first = Math.max(0, Math.min(first, pages.count - 40));
      pages.tidy(first, first + 40);
      wanted = pages.missing(first, first + 40);
      if (wanted) answer(wanted);
      found.asked += 1;
    } while (wanted && found.asked < 100_000);
    found.held = Math.max(found.held, pages.byId.size);
    const shown = Array.from({ length: Math.min(40, pages.count) }, (_, at) => pages.at(first + at)?.run_id);
    const list = truth().map((run) => run.run_id);
    const at = list.indexOf(shown[0] ?? "");
    const right = list.slice(at, at + shown.length);
    const exact = pages.count === list.length && (at === first || !shown.length);
    const bounds = (first > 0 || at <= 0) && (filtered || exact); // by status, runs leave pages that are not shown
    const places = shown.every((id, index) => pages.indexOf(id) === first + index);
    if (shown.join() !== right.join() || !bounds || !places) found.wrong.push({ first, at, shown, right });
  }

  answer({ page: pages.list[0], fromEnd: false });
  for (let step = 0; step < steps && !found.wrong.length; step += 1) {
    const what = chance(10);
    if (what < 2) for (let count = chance(300); count >= 0; count -= 1) change(born());
    else if (what < 4) {
      for (let count = chance(Math.min(30, all.length + 1)); count > 0; count -= 1) {
        const run = all[chance(all.length)];
        run.status = chance(2) ? "COMPLETED" : "RUNNING";
        run.version += 1;
        change(run);
      }
    } else if (what < 5) {
      for (let count = chance(3_000); count >= 0; count -= 1) born();
      pages.settled = false;
      pages.setTotal(truth().length);
      pages.doubt();
    }
    pages.setTotal(truth().length);
    look(what < 6 ? 0 : what < 7 ? pages.count : chance(pages.count));
  }
  return found;
}"""


@pytest.mark.parametrize("filtered", [False, True], ids=["all", "by status"])
@pytest.mark.parametrize("runs", [0, 150, 20_000])
def test_the_visible_rows_are_a_part_of_the_true_list(look: Look, runs: int, *, filtered: bool) -> None:
    with look() as visit:
        page = visit.go()
        for seed in range(1, 6):
            found = page.evaluate(STORY, [seed * 7_919, runs, 60, filtered])
            assert not found["wrong"], (seed, found["wrong"])
            assert found["held"] < MOST_HELD
        visit.check()
