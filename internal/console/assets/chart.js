// The chart of creates per second. The number of plants is sampled once a second
// while the page is visible, and the change between two samples is one bar of the
// last minute. Values are not smoothed or interpolated. A bar points down if more
// plants were removed than created.

const SPAN = 60_000;
const SVG = 'http://www.w3.org/2000/svg';

export class Pulse {
  #sample; #onCount; #svg; #rate; #note;
  #bars = [];
  #last = null;
  #timer = 0;
  #run = 0;

  // sample returns the number of plants, or null if the response has none; it
  // throws a Failure if the request fails.
  constructor({ sample, onCount, svg, rate, note }) {
    this.#sample = sample;
    this.#onCount = onCount;
    this.#svg = svg;
    this.#rate = rate;
    this.#note = note;
    document.addEventListener('visibilitychange', () => { if (this.#run) this.#resume(); });
    new ResizeObserver(() => this.#draw()).observe(svg);
  }

  start() {
    this.#run++;
    this.#bars = [];
    this.#resume();
  }

  stop() {
    this.#run = 0;
    clearTimeout(this.#timer);
  }

  #resume() {
    clearTimeout(this.#timer);
    // A change while the page was hidden would be drawn as one second.
    this.#last = null;
    if (!document.hidden) this.#tick(this.#run);
  }

  async #tick(run) {
    const requested = performance.now();
    let wait = 1000;
    try {
      const count = await this.#sample();
      if (run !== this.#run || document.hidden) return;
      const now = performance.now();
      // Counting a large store is expensive: spend at most a tenth of the
      // time on it.
      wait = Math.max(1000 - (now - requested), 9 * (now - requested));
      if (count !== null) {
        const at = (requested + now) / 2;
        if (this.#last) {
          const seconds = (at - this.#last.at) / 1000;
          this.#bars.push({ from: this.#last.at, to: at, rate: (count - this.#last.count) / seconds });
        }
        this.#last = { at, count };
        this.#onCount(count);
      }
      this.#note.textContent = '';
    } catch (failure) {
      if (run !== this.#run) return;
      this.#last = null;
      wait = Math.max(2000, 1000 * (Number(failure.retryAfter) || 5));
      this.#note.textContent = `paused: ${failure.status || 'no response'}`;
    }
    this.#draw();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tick(run), wait);
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#svg;
    if (!width) return;
    const now = this.#last?.at ?? performance.now();
    this.#bars = this.#bars.filter((bar) => bar.to > now - SPAN);

    const high = Math.max(1, ...this.#bars.map((bar) => bar.rate));
    const low = Math.min(0, ...this.#bars.map((bar) => bar.rate));
    const y = (rate) => 1 + ((high - rate) / (high - low)) * (height - 2);
    const x = (at) => width * (1 - (now - at) / SPAN);

    const shapes = [shape('line', { x1: 0, x2: width, y1: y(0), y2: y(0), class: 'zero' })];
    for (const bar of this.#bars) {
      if (Math.abs(bar.rate) < 0.05) continue;
      const left = Math.max(0, x(bar.from));
      shapes.push(shape('rect', {
        x: left + 0.75,
        width: Math.max(1, x(bar.to) - left - 1.5),
        y: Math.min(y(0), y(bar.rate)),
        height: Math.max(1, Math.abs(y(bar.rate) - y(0))),
        rx: 1.5,
        class: bar.rate > 0 ? 'up' : 'down',
      }));
    }
    this.#svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.#svg.replaceChildren(...shapes);

    if (!this.#bars.length) {
      this.#rate.textContent = '–';
      return;
    }
    const peak = Math.max(0, ...this.#bars.map((bar) => bar.rate));
    const summary = `now ${format(this.#bars.at(-1).rate)} · peak ${format(peak)}`;
    this.#rate.textContent = summary;
    this.#svg.setAttribute('aria-label', `Creates per second over the last minute: ${summary}`);
  }
}

function shape(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function format(rate) {
  const digits = Math.abs(rate) < 9.95 ? 1 : 0;
  const text = rate.toLocaleString('en', { maximumFractionDigits: digits }).replace('-', '\u2212');
  return text === '\u22120' ? '0' : text;
}
