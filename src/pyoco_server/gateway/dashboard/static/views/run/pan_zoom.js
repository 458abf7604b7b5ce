/** Moving about in a drawing: drag, wheel, pinch, keys. */

/** Names can be read from here on. */
const READABLE = 0.6;
/** A graph may be so much wider than the screen and still be walked through; a larger one is shown as a whole. */
const MOST_SCREENS = 3;
const CLOSEST = 2.5;
const STEP = 1.25;

export class PanZoom {
  /**
   * @param {SVGSVGElement} svg
   * @param {SVGGElement} scene
   * @param {AbortSignal} signal
   */
  constructor(svg, scene, signal) {
    this.svg = svg;
    this.scene = scene;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.size = { width: 1, height: 1 };
    this.touched = false;
    this.whole = false;
    /** @type {Map<number, [number, number]>} */
    this.pointers = new Map();
    this.moved = false;
    const on = (/** @type {string} */ name, /** @type {(event: any) => void} */ listener) =>
      svg.addEventListener(name, listener, { signal, passive: false });
    on("wheel", (event) => this.wheel(event));
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.up(event));
    on("pointercancel", (event) => this.up(event));
    const observer = new ResizeObserver(() => this.settle());
    observer.observe(svg);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Show everything. */
  fit() {
    const { clientWidth, clientHeight } = this.svg;
    if (!clientWidth || !clientHeight) return;
    this.scale = Math.min(1.1, clientWidth / this.size.width, clientHeight / this.size.height);
    this.x = (clientWidth - this.size.width * this.scale) / 2;
    this.y = (clientHeight - this.size.height * this.scale) / 2;
    this.touched = false;
    this.whole = true;
    this.apply();
  }

  /** The size or the graph has changed: fit it again, unless the user has moved or zoomed. */
  settle() {
    if (this.touched) return;
    if (this.whole) this.fit();
    else this.open();
  }

  /** The first view: the whole graph, or its beginning if the whole is too small to read. */
  open() {
    this.fit();
    this.whole = false;
    const { clientWidth, clientHeight } = this.svg;
    const [width, height] = [this.size.width * READABLE, this.size.height * READABLE];
    if (this.scale >= READABLE || width > MOST_SCREENS * clientWidth || height > clientHeight) return;
    this.scale = READABLE;
    this.x = 12;
    this.y = (clientHeight - height) / 2;
    this.apply();
  }

  /**
   * @param {number} factor
   * @param {number} [atX]
   * @param {number} [atY]
   */
  zoom(factor, atX = this.svg.clientWidth / 2, atY = this.svg.clientHeight / 2) {
    const farthest = Math.min(0.1, this.svg.clientWidth / this.size.width / 2);
    const scale = Math.max(farthest, Math.min(CLOSEST, this.scale * factor));
    this.x = atX - ((atX - this.x) * scale) / this.scale;
    this.y = atY - ((atY - this.y) * scale) / this.scale;
    this.scale = scale;
    this.touched = true;
    this.apply();
  }

  /** @param {1 | -1} direction */
  step(direction) {
    this.zoom(direction > 0 ? STEP : 1 / STEP);
  }

  /**
   * Bring a place into view.
   * @param {{x: number, y: number, width: number, height: number}} box
   */
  reveal(box) {
    const [left, top] = [box.x * this.scale + this.x, box.y * this.scale + this.y];
    const [right, bottom] = [left + box.width * this.scale, top + box.height * this.scale];
    const { clientWidth, clientHeight } = this.svg;
    if (left >= 0 && top >= 0 && right <= clientWidth && bottom <= clientHeight) return;
    this.x += clientWidth / 2 - (left + right) / 2;
    this.y += clientHeight / 2 - (top + bottom) / 2;
    this.touched = true;
    this.apply();
  }

  apply() {
    this.scene.setAttribute(
      "transform",
      `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`,
    );
    this.svg.dataset["detail"] = this.scale < 0.5 ? "colour" : this.scale < 0.75 ? "name" : "all";
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    this.zoom(
      Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)),
      event.clientX - box.left,
      event.clientY - box.top,
    );
  }

  /** @param {PointerEvent} event */
  down(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.moved = false;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const was = this.pointers.get(event.pointerId);
    if (!was) return;
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const other = others[0];
    if (other) {
      const box = this.svg.getBoundingClientRect();
      const before = Math.hypot(was[0] - other[0], was[1] - other[1]);
      const after = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
      if (before > 0)
        this.zoom(after / before, (event.clientX + other[0]) / 2 - box.left, (event.clientY + other[1]) / 2 - box.top);
    } else if (this.moved || Math.hypot(event.clientX - was[0], event.clientY - was[1]) > 3) {
      if (!this.moved) this.svg.setPointerCapture(event.pointerId);
      this.moved = true;
      this.x += event.clientX - was[0];
      this.y += event.clientY - was[1];
      this.touched = true;
      this.apply();
    } else return;
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  /** @param {PointerEvent} event */
  up(event) {
    this.pointers.delete(event.pointerId);
  }
}
