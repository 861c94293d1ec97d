// Helpers for elements, numbers and words. Data of a run is only ever set as text.

export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (k === 'class') e.className = v;
    else if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k in e && typeof v !== 'string') e[k] = v;
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// text sets an element's text if it has changed, which avoids needless layout.
export function text(e, s) {
  if (e.textContent !== s) e.textContent = s;
  return e;
}

const units = ['', 'k', 'M', 'G', 'T'];

export function short(v) {
  if (v === null || v === undefined || !isFinite(v)) return '–';
  let a = Math.abs(v), i = 0;
  while (a >= 9999.5 && i < units.length - 1) { a /= 1000; v /= 1000; i++; }
  if (i > 0 || a >= 1000) return (a >= 100 || i === 0 ? Math.round(v).toString() : v.toFixed(a >= 10 ? 1 : 2)) + units[i];
  return figure(v);
}

export function count(v) { return Math.round(v).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f'); }

// figure formats a number with significant digits.
export function figure(v, digits = 4) {
  if (v === null || v === undefined || !isFinite(v)) return '–';
  if (v === 0) return '0';
  const a = Math.abs(v);
  if (a >= 1e6 || a < 1e-3) return v.toExponential(2).replace('e+', 'e').replace('-', '−');
  const places = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(a))));
  return v.toFixed(places).replace('-', '−');
}

export function ms(v) {
  if (v === null || v === undefined || !isFinite(v)) return '–';
  if (v >= 60000) return `${Math.floor(v / 60000)} min ${Math.round(v % 60000 / 1000)} s`;
  if (v >= 1000) return `${(v / 1000).toFixed(v >= 10000 ? 1 : 2)} s`;
  if (v >= 10) return `${v.toFixed(v >= 100 ? 0 : 1)} ms`;
  if (v >= 0.1 || v === 0) return `${v.toFixed(2)} ms`;
  return `${(v * 1000).toFixed(0)} µs`;
}

export function bytes(v) {
  if (!v) return '–';
  let i = 0;
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  while (v >= 1024 && i < 4) { v /= 1024; i++; }
  return `${v.toFixed(v >= 100 || i === 0 ? 0 : 1)} ${names[i]}`;
}

// some formats a count: exact, or short if it is large.
export const some = (v) => (Number.isInteger(v) && Math.abs(v) < 10000 ? String(v) : short(v));

// place formats a position on an axis with as few digits as possible.
export const place = (v) => trimmed(some(Math.round(v * 100) / 100)).replace(/^1000k/, '1M');

// trimmed removes trailing zeros after the decimal point, and a trailing point.
export const trimmed = (s) => s.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');

export function duration(s) {
  if (!isFinite(s)) return '–';
  if (s < 90) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const m = Math.round(s / 60), h = Math.floor(m / 60);
  if (m < 60) return `${m} min`;
  return h < 48 ? `${(m / 60).toFixed(h < 10 ? 1 : 0)} h` : `${Math.round(h / 24)} days`;
}

// rate formats a learning rate with three digits.
export function rate(v) {
  if (v === null || v === undefined || !isFinite(v)) return '–';
  if (v === 0) return '0';
  const r = Number(v.toPrecision(3));
  return (r < 1e-3 ? r.toExponential() : String(r)).replace('-', '−');
}

// shown is a value of TOML for people: without quotes, and without digits that only a computer needs.
export function shown(v) {
  if (/^-?[\d.]+(e[-+]?\d+)?$/.test(v) && v.replace(/e.*|[^\d]/g, '').length > 15) return String(Number(Number(v).toPrecision(12)));
  if (v.length > 1 && v.startsWith('"') && v.endsWith('"')) { try { return JSON.parse(v) || '""'; } catch { /* TOML has more escapes than JSON */ } }
  return v;
}

// stepOf is how far a run has come. A run that was started again with fewer steps is past its last one.
export const stepOf = (d) => (!d.steps ? count(d.step) : d.step > d.steps ? `${count(d.step)}; run.steps is ${count(d.steps)}` : `${count(d.step)} of ${count(d.steps)}`);

export const over = (d) => ['ended', 'stopped', 'failed'].includes(d.state);

export const pct = (v) => (v === null || v === undefined || !isFinite(v) ? '–' : `${v.toFixed(1)} %`);

// writers format a value with its unit; other units are in a chart's title.
export const writers = { '': figure, ms, bytes, '%': (v) => `${figure(v, 3)} %` };
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
export const clock = (t) => new Date(t).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

// colour returns a color of the theme by its name in pipeline.css.
let cached = null;
export function colour(name) {
  cached ??= getComputedStyle(document.documentElement);
  return cached.getPropertyValue(`--${name}`).trim();
}
export function freshColours() { cached = null; }

// say announces a text to screen readers.
export function say(s) { text(document.getElementById('said'), s); }

export function styled(e, styles) {
  for (const [k, v] of Object.entries(styles)) e.style.setProperty(k, v);
  return e;
}

export function swatch(name) { return styled(el('span', { class: 'swatch', 'aria-hidden': 'true' }), { background: `var(--${name})` }); }

export const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// sized sets the size of a canvas in device pixels.
export function sized(canvas, width, height) {
  const scale = Math.min(2, devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * scale)), h = Math.max(1, Math.round(height * scale));
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  canvas.style.height = `${height}px`;
  return scale;
}

// table makes a table with a caption, columns as [name, class] and rows. The class of columns of numbers is n.
export function table(caption, columns, rows, props = {}) {
  return el('div', { class: `scroll ${props.tall ? 'tall' : ''}`, tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', { class: props.class || '' }, el('caption', { class: 'hidden' }, caption),
      el('thead', {}, el('tr', {}, columns.map(([name, cls]) => el('th', { scope: 'col', class: cls || '' }, name)))),
      el('tbody', {}, rows)));
}
