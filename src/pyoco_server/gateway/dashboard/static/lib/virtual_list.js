/** A long list of which only what can be seen is in the page. */

import { h } from "./dom.js";

const SPARE = 8;

/**
 * @typedef {{
 *   scroller: HTMLElement,
 *   rowHeight: () => number,
 *   keyOf: (index: number) => string,
 *   render: (index: number, element: HTMLElement | null) => HTMLElement,
 *   onEnd?: () => void,
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
    /** @type {{key: string, index: number} | null} what stood at the top when it was last drawn */
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

  /** Draw before the next frame, once however often it is asked. */
  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.draw();
    });
  }

  draw() {
    const { scroller, keyOf, render, onEnd } = this.options;
    const height = this.options.rowHeight();
    this.room.style.height = `${this.count * height}px`;
    this.hold(height);
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - SPARE);
    const last = Math.min(this.count, Math.ceil((scroller.scrollTop + scroller.clientHeight) / height) + SPARE);
    /** @type {Map<string, HTMLElement>} */
    const next = new Map();
    for (let index = first; index < last; index += 1) {
      const key = keyOf(index);
      const had = this.shown.get(key) ?? null;
      const element = render(index, had);
      element.style.transform = `translateY(${index * height}px)`;
      if (element !== had) this.room.append(element);
      next.set(key, element);
    }
    for (const [key, element] of this.shown) if (next.get(key) !== element) element.remove();
    this.shown = next;
    const top = Math.floor(scroller.scrollTop / height);
    this.top = top < this.count ? { key: keyOf(top), index: top } : null;
    if (onEnd && last >= this.count - SPARE) onEnd();
  }

  /** Whoever has scrolled down goes on seeing the same rows, whatever came in above them. @param {number} height */
  hold(height) {
    const { scroller, placeOf } = this.options;
    if (!placeOf || !this.top || !scroller.scrollTop) return;
    const index = placeOf(this.top.key);
    if (index >= 0 && index !== this.top.index) scroller.scrollTop += (index - this.top.index) * height;
  }

  /** @param {number} index */
  scrollTo(index) {
    const { scroller } = this.options;
    const height = this.options.rowHeight();
    const top = index * height;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + height > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = top + height - scroller.clientHeight;
    this.plan();
  }
}
