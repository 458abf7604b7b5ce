"""A graph of five hundred nodes: drawn at once, and readable."""

from playwright.sync_api import expect

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site

FILL = """async () => {
  const { layout } = await import("/static/views/run/layout.js");
  const nodes = new Map();
  for (let at = 0; at < 500; at += 1) {
    const edges = [at * 2 + 1, at * 2 + 2, at + 7].filter((to) => to < 500).map((to) => ({ to: `n${to}` }));
    nodes.set(`n${at}`, { id: `n${at}`, type: "Task", label: `n${at}`, edges });
  }
  const began = performance.now();
  const made = layout(nodes);
  const took = performance.now() - began;
  return { took, boxes: [...made.nodes.values()].map(({ x, y, width, height }) => [x, y, width, height]) };
}"""


def test_five_hundred_nodes_are_drawn_and_can_be_read(look: Look, site: Site) -> None:
    run_id = site.ended("wide")
    graph = site.client.get(f"/runs/{run_id}/graph").json()
    assert len(graph["nodes"]) >= 500
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".graph .node")).to_have_count(len(graph["nodes"]))
        box = page.locator(".graph").bounding_box()
        scene = page.locator(".graph > g").bounding_box()
        assert box is not None
        assert scene is not None
        assert scene["width"] <= box["width"] + 2
        assert scene["height"] <= box["height"] + 2
        part = page.locator(".node[data-id=part_250]")
        part.click()
        expect(page.locator(".inspector h2")).to_have_text("part_250")
        part.focus()
        for _ in range(8):
            page.keyboard.press("+")
        expect(page.locator(".graph")).to_have_attribute("data-detail", "all")
        visit.check()


def test_five_hundred_tangled_nodes_are_laid_out_at_once_and_apart(look: Look) -> None:
    with look() as visit:
        made = visit.go().evaluate(FILL)
        visit.check()
    assert made["took"] < 1_000
    boxes = sorted(made["boxes"])
    assert len(boxes) == 500
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, _, other_height in boxes[index + 1 :]:
            if other_x >= x + width:
                break
            assert other_y >= y + height or y >= other_y + other_height, (x, y, other_x, other_y)
