/** A layered drawing of a graph: which layer, in which order, at which place. */

const GAP = { x: 48, y: 16 };
const MARGIN = 16;
const TALLEST = 20;
const SWEEPS = 6;
const WIDEST = 3.2;
const AROUND = 20;

/**
 * @typedef {{id: string, real: boolean, width: number, height: number, before: Item[], after: Item[], layer: number,
 *   order: number, x: number, y: number, band: number, bandTop: number}} Item
 * @typedef {{x: number, y: number, width: number, height: number}} Frame
 * @typedef {{from: string, to: string, on: string}} Edge
 */

/**
 * @param {string[]} ids
 * @param {Edge[]} edges
 * @param {Map<string, {width: number, height: number}>} sizes
 * @returns {{width: number, height: number, places: Map<string, [number, number]>, wires: Wire[], frames: Frame[]}}
 */
export function arrange(ids, edges, sizes) {
  const items = new Map(ids.map((id) => [id, item(id, true, sizes.get(id) ?? { width: 0, height: 0 })]));
  const chains = connect(items, edges);
  const all = [...items.values(), ...chains.flatMap((chain) => chain.bends)];
  /** @type {Item[][]} */
  const layers = [];
  for (const one of all) (layers[one.layer] ??= []).push(one);
  for (let at = 0; at < layers.length; at += 1) layers[at] ??= [];
  order(layers);
  const columns = layers.map(wrap);
  settle(columns);
  const size = place(columns);
  const frames = frame(columns);
  const wires = distinct(
    chains.map(({ edge, from, bends, to }) => ({ ...edge, points: route([from, ...bends, to], frames) })),
  );
  return {
    ...size,
    places: new Map([...items.values()].map((one) => [one.id, [one.x, one.y]])),
    wires,
    frames: [...new Set(frames.values())],
  };
}

/**
 * The boxes around wrapped layers, by item: edges lead to the box, not through it.
 * @param {Item[][][]} columns
 * @returns {Map<Item, Frame>}
 */
function frame(columns) {
  /** @type {Map<Item, Frame>} */
  const frames = new Map();
  for (const layer of columns) {
    if (layer.length < 2) continue;
    const inside = layer.flat();
    const [left, top] = [Math.min(...inside.map((one) => one.x)), Math.min(...inside.map((one) => one.y))];
    const [right, bottom] = [
      Math.max(...inside.map((one) => one.x + one.width)),
      Math.max(...inside.map((one) => one.y + one.height)),
    ];
    const made = { x: left - GAP.y, y: top - GAP.y, width: right - left + 2 * GAP.y, height: bottom - top + 2 * GAP.y };
    for (const one of inside) frames.set(one, made);
  }
  return frames;
}

/**
 * Where an edge runs: through its bends, around boxes, and between bands from the end of one to the beginning of the next.
 * @param {Item[]} stops
 * @param {Map<Item, Frame>} frames
 * @returns {[number, number][]}
 */
function route(stops, frames) {
  /** @type {[number, number][]} */
  const points = [];
  stops.forEach((stop, at) => {
    const boxed = frames.get(stop);
    const shape = boxed ?? stop;
    const y = shape.y + shape.height / 2;
    const before = points.at(-1);
    const band = stops[at - 1]?.band ?? stop.band;
    if (before && band !== stop.band) {
      points.push(
        [before[0] + AROUND, before[1]],
        [before[0] + AROUND, stop.bandTop - AROUND],
        [shape.x - AROUND, stop.bandTop - AROUND],
        [shape.x - AROUND, y],
      );
    }
    if (at > 0) points.push([shape.x, y]);
    if (at < stops.length - 1 && (at === 0 || shape.width > 0)) points.push([shape.x + shape.width, y]);
  });
  return points;
}

/**
 * Edges that run the same way are drawn once.
 * @template {{points: [number, number][]}} W
 * @param {W[]} wires
 */
function distinct(wires) {
  return [...new Map(wires.map((wire) => [wire.points.join(" "), wire])).values()];
}

/**
 * @param {string} id
 * @param {boolean} real
 * @param {{width: number, height: number}} size
 * @returns {Item}
 */
function item(id, real, size) {
  return {
    id,
    real,
    width: size.width,
    height: size.height,
    before: [],
    after: [],
    layer: 0,
    order: 0,
    x: 0,
    y: 0,
    band: 0,
    bandTop: 0,
  };
}

/**
 * Give every item its layer, and every edge across several layers a bend in each of them.
 * @param {Map<string, Item>} items
 * @param {Edge[]} edges
 */
function connect(items, edges) {
  /** @type {Map<string, string[]>} */
  const following = new Map();
  /** @type {Map<string, number>} */
  const open = new Map([...items.keys()].map((id) => [id, 0]));
  for (const { from, to } of edges) {
    const known = following.get(from);
    if (known) known.push(to);
    else following.set(from, [to]);
    open.set(to, (open.get(to) ?? 0) + 1);
  }
  const ready = [...items.keys()].filter((id) => !open.get(id));
  for (let id = ready.shift(); id !== undefined; id = ready.shift()) {
    const layer = /** @type {Item} */ (items.get(id)).layer;
    for (const next of following.get(id) ?? []) {
      const after = /** @type {Item} */ (items.get(next));
      after.layer = Math.max(after.layer, layer + 1);
      const left = (open.get(next) ?? 0) - 1;
      open.set(next, left);
      if (!left) ready.push(next);
    }
  }
  return edges.map((edge) => {
    const from = /** @type {Item} */ (items.get(edge.from));
    const to = /** @type {Item} */ (items.get(edge.to));
    const bends = [];
    let last = from;
    for (let layer = from.layer + 1; layer < to.layer; layer += 1) {
      const bend = item("", false, { width: 0, height: 0 });
      bend.layer = layer;
      bends.push(bend);
      join(last, bend);
      last = bend;
    }
    join(last, to);
    return { edge, from, bends, to };
  });
}

/**
 * @param {Item} one
 * @param {Item} other
 */
function join(one, other) {
  one.after.push(other);
  other.before.push(one);
}

/**
 * Order each layer by the positions of its neighbours, so that few edges cross.
 * @param {Item[][]} layers
 */
function order(layers) {
  for (const layer of layers) layer.forEach((one, at) => (one.order = at));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wanted = new Map(
        layer.map((one) => [
          one,
          mean(
            (down ? one.before : one.after).map((other) => other.order),
            one.order,
          ),
        ]),
      );
      layer.sort((one, other) => (wanted.get(one) ?? 0) - (wanted.get(other) ?? 0) || one.order - other.order);
      layer.forEach((one, at) => (one.order = at));
    }
  }
}

/**
 * @param {number[]} values
 * @param {number} otherwise
 */
function mean(values, otherwise) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : otherwise;
}

/**
 * A layer as columns: one, unless it is a tower.
 * @param {Item[]} layer
 * @returns {Item[][]}
 */
function wrap(layer) {
  const real = layer.filter((one) => one.real).length;
  if (real <= TALLEST) return [layer];
  const each = Math.ceil(layer.length / Math.ceil(Math.sqrt(real / 2.2)));
  const columns = [];
  for (let from = 0; from < layer.length; from += each) columns.push(layer.slice(from, from + each));
  return columns;
}

/**
 * The heights of items: near their neighbours, without overlaps.
 * @param {Item[][][]} columns
 */
function settle(columns) {
  for (const column of columns.flat()) {
    let y = 0;
    for (const one of column) {
      one.y = y;
      y += one.height + GAP.y;
    }
    for (const one of column) one.y -= y / 2;
  }
  const single = columns.filter((layer) => layer.length === 1).map((layer) => /** @type {Item[]} */ (layer[0]));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? single : [...single].reverse()) {
      const wanted = layer.map(
        (one) =>
          mean(
            (down ? one.before : one.after).map((other) => other.y + other.height / 2),
            one.y + one.height / 2,
          ) -
          one.height / 2,
      );
      apart(layer, wanted);
    }
  }
}

/**
 * The positions nearest to the wanted ones that keep order and distances: the mean of pushing down and pushing up.
 * @param {Item[]} layer
 * @param {number[]} wanted
 */
function apart(layer, wanted) {
  const down = [...wanted];
  const up = [...wanted];
  for (let at = 1; at < layer.length; at += 1) {
    const above = /** @type {Item} */ (layer[at - 1]);
    down[at] = Math.max(/** @type {number} */ (down[at]), /** @type {number} */ (down[at - 1]) + above.height + GAP.y);
  }
  for (let at = layer.length - 2; at >= 0; at -= 1) {
    const here = /** @type {Item} */ (layer[at]);
    up[at] = Math.min(/** @type {number} */ (up[at]), /** @type {number} */ (up[at + 1]) - here.height - GAP.y);
  }
  layer.forEach((one, at) => (one.y = ((down[at] ?? 0) + (up[at] ?? 0)) / 2));
}

/**
 * From layers to a drawing: left to right, in bands below each other where one would be too long.
 * @param {Item[][][]} columns
 */
function place(columns) {
  const widths = columns.map(
    (layer) =>
      layer.reduce((sum, column) => sum + Math.max(0, ...column.map((one) => one.width)), 0) +
      GAP.y * (layer.length - 1),
  );
  const extent = (/** @type {Item[]} */ some) =>
    Math.max(...some.map((one) => one.y + one.height)) - Math.min(...some.map((one) => one.y));
  const all = columns.flat(2);
  if (!all.length) return { width: 0, height: 0 };
  const long = widths.reduce((sum, width) => sum + width + GAP.x, 0);
  const tall = extent(all) + 40;
  const bands = long / tall > WIDEST && long > 1_600 ? Math.max(1, Math.round(Math.sqrt(long / (tall * 2)))) : 1;
  let [x, top, band, width] = [2 * MARGIN, 2 * MARGIN, 0, 0];
  /** @type {Item[]} */
  let current = [];
  const endBand = () => {
    const least = Math.min(...current.map((one) => one.y));
    const height = extent(current);
    for (const one of current) [one.y, one.band, one.bandTop] = [one.y + top - least, band, top];
    top += height + 44;
    width = Math.max(width, x);
    [x, current] = [2 * MARGIN, []];
    band += 1;
  };
  columns.forEach((layer, at) => {
    for (const column of layer) {
      const widest = Math.max(0, ...column.map((one) => one.width));
      for (const one of column) one.x = x + (widest - one.width) / 2;
      current.push(...column);
      x += widest + GAP.y;
    }
    x += GAP.x - GAP.y;
    const isLast = at === columns.length - 1;
    if (isLast || (bands > band + 1 && x > long / bands)) endBand();
  });
  return { width: width - GAP.x + 2 * MARGIN, height: top - 44 + 2 * MARGIN };
}
