/**
 * Where the nodes of a run are drawn: layers from left to right, blocks (loops, choices, groups) as boxes around what
 * happened inside them, one row a round. Graphs that would become strips are wrapped into bands, layers that would
 * become towers into columns, so that five hundred nodes still fit a screen.
 */

import { arrange } from "./layers.js";

export const BOX = { width: 176, height: 40 };
const DOT = { width: 22, height: 22 };
const GAP = { x: 26, y: 12 };
const PAD = 12;
const HEAD = 26;
const GUTTER = 30;
const DOTS = new Set(["Start", "Success", "Failure", "Cancel", "End", "Fork", "Join"]);

/** @typedef {{width: number, height: number, place: (x: number, y: number, depth: number, to: Layout) => void}} Measured */

/**
 * @param {Map<string, FoldedNode>} nodes
 * @returns {Layout}
 */
export function layout(nodes) {
  /** @type {Map<string, {id: string, round: number | null}[]>} */
  const children = new Map();
  const top = [];
  for (const id of nodes.keys()) {
    const place = parentOf(id, nodes);
    if (!place) {
      top.push(id);
      continue;
    }
    const siblings = children.get(place.parent);
    if (siblings) siblings.push({ id, round: place.round });
    else children.set(place.parent, [{ id, round: place.round }]);
  }
  const measured = new Map(top.map((id) => [id, measure(id, nodes, children)]));
  const edges = top.flatMap((id) =>
    (nodes.get(id)?.edges ?? [])
      .filter((edge) => measured.has(edge.to))
      .map((edge) => ({ from: id, to: edge.to, on: edge.on ?? "success" })),
  );
  const arranged = arrange(top, edges, measured);
  /** @type {Layout} */
  const made = {
    width: arranged.width,
    height: arranged.height,
    nodes: new Map(),
    wires: [...arranged.wires],
    frames: arranged.frames,
    rounds: [],
  };
  for (const [id, [x, y]] of arranged.places) measured.get(id)?.place(x, y, 0, made);
  return made;
}

/**
 * The block of a node, from its id: `block[2]/task`, or `block/task`.
 * @param {string} id
 * @param {Map<string, FoldedNode>} nodes
 */
export function parentOf(id, nodes) {
  for (let slash = id.lastIndexOf("/"); slash > 0; slash = id.lastIndexOf("/", slash - 1)) {
    const found = /^(.*?)(?:\[(\d+)\])?$/s.exec(id.slice(0, slash));
    if (found?.[1] && nodes.has(found[1]))
      return { parent: found[1], round: found[2] === undefined ? null : Number(found[2]) };
    if (nodes.has(id.slice(0, slash))) return { parent: id.slice(0, slash), round: null };
  }
  return null;
}

/**
 * @param {string} id
 * @param {Map<string, FoldedNode>} nodes
 * @param {Map<string, {id: string, round: number | null}[]>} children
 * @returns {Measured}
 */
function measure(id, nodes, children) {
  const node = /** @type {FoldedNode} */ (nodes.get(id));
  const inside = children.get(id);
  if (!inside) {
    const dot = DOTS.has(node.type);
    const size = dot ? DOT : BOX;
    return {
      ...size,
      place: (x, y, depth, to) => to.nodes.set(id, { node, x, y, ...size, kind: dot ? "dot" : "box", depth }),
    };
  }
  /** @type {Map<number | null, {id: string, size: Measured}[]>} */
  const rounds = new Map();
  for (const child of inside) {
    const row = rounds.get(child.round) ?? [];
    row.push({ id: child.id, size: measure(child.id, nodes, children) });
    rounds.set(child.round, row);
  }
  return block(
    node,
    [...rounds].sort(([one], [other]) => (one ?? -1) - (other ?? -1)),
  );
}

/**
 * @param {FoldedNode} node
 * @param {[number | null, {id: string, size: Measured}[]][]} rounds
 * @returns {Measured}
 */
function block(node, rounds) {
  const numbered = rounds.some(([round]) => round !== null);
  const rows = rounds.map(([round, items]) => ({
    round,
    items,
    width: (numbered ? GUTTER : 0) + items.reduce((sum, item) => sum + item.size.width, 0) + GAP.x * (items.length - 1),
    height: Math.max(...items.map((item) => item.size.height)),
  }));
  const columns = inColumns(rows);
  const width = columns.reduce((sum, column) => sum + column.width, 0) + PAD * (columns.length + 1);
  const height = HEAD + PAD + Math.max(...columns.map((column) => column.height));
  return {
    width: Math.max(width, BOX.width),
    height,
    place: (x, y, depth, to) => {
      to.nodes.set(node.id, { node, x, y, width: Math.max(width, BOX.width), height, kind: "block", depth });
      let left = x + PAD;
      for (const column of columns) {
        let line = y + HEAD;
        for (const row of column.rows) {
          if (row.round !== null) to.rounds.push({ x: left, y: line + row.height / 2, text: `${row.round + 1}` });
          placeRow(row.items, left + (numbered ? GUTTER : 0), line, row.height, depth, to);
          line += row.height + GAP.y;
        }
        left += column.width + PAD;
      }
    },
  };
}

/**
 * @param {{id: string, size: Measured}[]} items
 * @param {number} left
 * @param {number} line
 * @param {number} height
 * @param {number} depth
 * @param {Layout} to
 */
function placeRow(items, left, line, height, depth, to) {
  let x = left;
  items.forEach((item, index) => {
    item.size.place(x, line + (height - item.size.height) / 2, depth + 1, to);
    const next = items[index + 1];
    if (next) {
      const middle = line + height / 2;
      to.wires.push({
        from: item.id,
        to: next.id,
        on: "success",
        points: [
          [x + item.size.width, middle],
          [x + item.size.width + GAP.x, middle],
        ],
      });
    }
    x += item.size.width + GAP.x;
  });
}

/**
 * Rows in as many columns as make the whole about as wide as a screen.
 * @template {{width: number, height: number}} R
 * @param {R[]} rows
 */
function inColumns(rows) {
  const widest = Math.max(...rows.map((row) => row.width));
  const tall = rows.reduce((sum, row) => sum + row.height + GAP.y, 0);
  const count = rows.length <= 8 ? 1 : Math.max(1, Math.round(Math.sqrt((tall / widest) * 1.4)));
  const each = Math.ceil(rows.length / count);
  const columns = [];
  for (let from = 0; from < rows.length; from += each) {
    const part = rows.slice(from, from + each);
    columns.push({
      rows: part,
      width: Math.max(...part.map((row) => row.width)),
      height: part.reduce((sum, row) => sum + row.height + GAP.y, 0),
    });
  }
  return columns;
}
