// The overview: the number of plants, and the chart of creates per second. Each
// bar is the time between two samples; values are not smoothed or interpolated.

import { html, useLayoutEffect, useRef, useState } from './preact.js';
import { SPAN, activity } from './activity.js';
import { plantCount } from './count.js';
import { use } from './observable.js';

export function Overview() {
  const count = use(plantCount);
  const { bars, stopped } = use(activity);
  const summary = bars.length ? `now ${format(bars.at(-1).rate)} · peak ${format(Math.max(...bars.map((bar) => bar.rate)))}` : '–';
  return html`<section class="overview card" aria-label="Overview">
    <div class="figure"><h2>Plants</h2><p class="big" id="count">${count === null ? '–' : count.toLocaleString('en')}</p></div>
    <div class="pulse">
      <div class="pulse-head"><h2>Creates per second</h2><p class="note" id="rate">${summary}</p></div>
      <${Chart} label=${`Creates per second over the last minute: ${summary}`} />
      <p class="note axis" aria-hidden=${stopped ? null : 'true'}><span>1 min ago</span><span id="chart-note">${stopped}</span><span>now</span></p>
    </div>
  </section>`;
}

function Chart({ label }) {
  const { bars, now } = use(activity);
  const svg = useRef();
  const [{ width, height }, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => setSize({ width: svg.current.clientWidth, height: svg.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(svg.current);
    return () => observer.disconnect();
  }, []);
  const high = Math.max(1, ...bars.map((bar) => bar.rate));
  const tall = (rate) => (rate / high) * (height - 2);
  const x = (at) => width * (1 - (now - at) / SPAN);
  return html`<svg id="chart" ref=${svg} role="img" aria-label=${label} viewBox=${`0 0 ${width || 1} ${height || 1}`} preserveAspectRatio="none">
    <line class="zero" x1="0" x2=${width} y1=${height - 1} y2=${height - 1} />
    ${width > 0 && bars.filter((bar) => bar.rate >= 0.05).map((bar) => {
      const left = Math.max(0, x(bar.from));
      return html`<rect class="up" key=${bar.to} rx="1.5" x=${left + 0.75} width=${Math.max(1, x(bar.to) - left - 1.5)}
        y=${height - 1 - Math.max(1, tall(bar.rate))} height=${Math.max(1, tall(bar.rate))} />`;
    })}
  </svg>`;
}

const format = (rate) => rate.toLocaleString('en', { maximumFractionDigits: rate < 9.95 ? 1 : 0 });
