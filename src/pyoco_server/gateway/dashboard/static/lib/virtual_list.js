/** A long list with only its visible rows in the page. */

import { h } from "./dom.js";

const SPARE = 8;
/** The largest height that browsers support; a longer list moves faster than its scroll bar. */
const TALLEST_PX = 12_000_000;

/**
 * @typedef {{
 *   scroller: HTMLElement,
 *   rowHeight: () => number,
 *   keyOf: (index: number) => string,
 *   render: (index: number, element: HTMLElement | null) => HTMLElement,
 *   onShown?: (first: number, last: number) => void,
 *   placeOf?: (key: string) => number,
 * }} Options
 */

export class VirtualList {
  /**
   * @param {Options} options
   * @param {AbortSignal} signal
   */
  constructor(options, signal) {
    this.options = options;
    this.count = 0;
    this.room = h("div", { class: "virtual-room", role: "presentation" });
    options.scroller.append(this.room);
    /** @type {Map<string, HTMLElement>} */
    this.shown = new Map();
    this.planned = false;
    /** @type {{key: string, index: number} | null} the top row of the last drawing */
    this.top = null;
    options.scroller.addEventListener("scroll", () => this.plan(), { signal, passive: true });
    const observer = new ResizeObserver(() => this.plan());
    observer.observe(options.scroller);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** @param {number} count */
  setCount(count) {
    this.count = count;
    this.plan();
  }

  /** Draw once before the next frame, also after several calls. */
  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.draw();
    });
  }

  draw() {
    const { scroller, keyOf, render, onShown } = this.options;
    const height = this.options.rowHeight();
    this.room.style.height = `${Math.min(this.count * height, TALLEST_PX)}px`;
    this.hold(height);
    const { scrollTop, clientHeight } = scroller;
    const begin = scrollTop * this.pace(height);
    const [top, end] = [Math.floor(begin / height), Math.ceil((begin + clientHeight) / height)];
    const [first, last] = [Math.max(0, top - SPARE), Math.min(this.count, end + SPARE)];
    /** @type {Map<string, HTMLElement>} */
    const next = new Map();
    for (let index = first; index < last; index += 1) {
      const key = keyOf(index);
      const had = this.shown.get(key) ?? null;
      const element = render(index, had);
      element.style.transform = `translateY(${index * height - begin + scrollTop}px)`;
      if (element !== had) this.room.append(element);
      next.set(key, element);
    }
    for (const [key, element] of this.shown) if (next.get(key) !== element) element.remove();
    this.shown = next;
    this.top = top < this.count ? { key: keyOf(top), index: top } : null;
    onShown?.(first, last);
  }

  /** The distance that the list moves for each scrolled pixel. @param {number} height */
  pace(height) {
    const { clientHeight } = this.options.scroller;
    const tall = this.count * height;
    return tall > TALLEST_PX ? (tall - clientHeight) / (TALLEST_PX - clientHeight) : 1;
  }

  /** Keep the same rows visible when rows are added above them. @param {number} height */
  hold(height) {
    const { scroller, placeOf } = this.options;
    if (!placeOf || !this.top || !scroller.scrollTop) return;
    const index = placeOf(this.top.key);
    if (index >= 0 && index !== this.top.index)
      scroller.scrollTop += ((index - this.top.index) * height) / this.pace(height);
  }

  /** @param {number} index */
  scrollTo(index) {
    const { scroller } = this.options;
    const height = this.options.rowHeight();
    const pace = this.pace(height);
    const [top, begin] = [index * height, scroller.scrollTop * pace];
    if (top < begin) scroller.scrollTop = top / pace;
    else if (top + height > begin + scroller.clientHeight)
      scroller.scrollTop = (top + height - scroller.clientHeight) / pace;
    this.plan();
  }
}
