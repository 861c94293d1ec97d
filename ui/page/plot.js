// A chart of curves over one axis, on a canvas. Drag, use the wheel or press keys to zoom; point or
// press arrow keys to read values. Charts of one page share their axis and their cursor.

import { el, colour, sized, figure, text, say, trimmed, place } from './dom.js';
import { nice } from './pipeline.js';

export const runColours = ['r0', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7'];
const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [1, 2], [6, 2, 1, 2, 1, 2]];

// Axis is what charts share: the visible range and the cursor.
export class Axis {
  constructor(changed) { this.changed = changed; this.charts = new Set(); this.all = [0, 1]; this.view = null; this.cursor = null; this.label = place; this.words = (x) => `Step ${Math.round(x)}`; }

  range() { return this.view || this.all; }

  set(view) {
    if (view) {
      const [a, b] = this.all, least = Math.max((b - a) / 1e6, 1e-9);
      let [x, y] = view;
      const span = Math.min(b - a, Math.max(least, y - x));
      x = Math.max(a, Math.min(b - span, x));
      view = span >= (b - a) * 0.999 ? null : [x, x + span];
    }
    this.view = view;
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.changed(), 120);
  }

  zoom(f, at) {
    const [a, b] = this.range();
    at ??= this.cursor ?? (a + b) / 2;
    this.set([at - (at - a) * f, at + (b - at) * f]);
  }

  pan(share) { const [a, b] = this.range(); this.set([a + share * (b - a), b + share * (b - a)]); }

  point(x) { this.cursor = x; this.draw(); }

  draw() { for (const c of this.charts) c.draw(); }
}

// Chart draws series of {name, run, hue, dash, x, min, max, mean, last, step}.
export class Chart {
  constructor(axis, title, unit, format = figure) {
    this.axis = axis; this.title = title; this.format = format; this.series = []; this.marks = []; this.log = false; this.zero = false; this.smooth = 0;
    this.canvas = el('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': 'chart', 'aria-label': title });
    this.readout = el('p', { class: 'readout' });
    this.heading = el('h2', {}, title, unit ? el('small', { class: 'unit' }, ` ${unit}`) : '');
    this.element = el('section', { class: 'card' }, el('header', {}, this.heading), el('figure', { class: 'draw' }, this.canvas, this.readout));
    axis.charts.add(this);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.listen();
  }

  draw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.paint(); });
  }

  set(series, marks) { this.series = series; this.marks = marks || []; this.draw(); this.describe(); }

  // smoothed is a series' mean as an exponential moving average.
  smoothed(s) {
    if (!this.smooth) return s.mean;
    if (s.smoothFor === this.smooth) return s.smoothed;
    const out = new Array(s.mean.length);
    let sum = 0, weight = 0;
    s.mean.forEach((v, i) => {
      if (v === null) { out[i] = null; return; }
      sum = sum * this.smooth + v * (1 - this.smooth);
      weight = weight * this.smooth + (1 - this.smooth);
      out[i] = sum / weight;
    });
    s.smoothFor = this.smooth;
    return (s.smoothed = out);
  }

  paint() {
    const width = this.element.querySelector('figure').clientWidth;
    if (!width) return;
    const height = Math.round(Math.max(170, Math.min(230, width * 0.42)));
    const scale = sized(this.canvas, width, height), ctx = this.canvas.getContext('2d');
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, width, height);
    const L = (this.L = { left: 54, right: width - 8, top: 8, bottom: height - 24 });
    const [a, b] = this.axis.range();
    const X = (x) => L.left + ((x - a) / (b - a || 1)) * (L.right - L.left);
    let low = Infinity, high = -Infinity;
    for (const s of this.series) {
      for (let i = 0; i < s.x.length; i++) {
        if (s.x[i] < a || s.x[i] > b) continue;
        const lo = this.smooth ? this.smoothed(s)[i] : s.min[i], hi = this.smooth ? lo : s.max[i];
        if (lo === null || hi === null || (this.log && lo <= 0)) continue;
        if (lo < low) low = lo;
        if (hi > high) high = hi;
      }
    }
    this.empty = !isFinite(low);
    if (this.empty) { low = 0; high = 1; }
    const log = this.log && low > 0;
    if (log) { low = Math.log10(low); high = Math.log10(high); } else if (this.zero) low = Math.min(0, low);
    if (high - low < Math.abs(high) * 1e-9 || high === low) { const d = Math.abs(high) * 0.1 || 1; low -= d; high += d; }
    const pad = (high - low) * 0.06;
    if (!(this.zero && !log && low === 0)) low -= pad;
    high += pad;
    const Y = (v) => L.bottom - (((log ? Math.log10(v) : v) - low) / (high - low)) * (L.bottom - L.top);
    // The grid.
    ctx.font = '11px system-ui, sans-serif'; ctx.textBaseline = 'middle'; ctx.fillStyle = colour('soft'); ctx.strokeStyle = colour('line'); ctx.lineWidth = 1;
    ctx.textAlign = 'right';
    const ticks = [];
    if (log && high - low > 1) for (let e = Math.ceil(low); e <= high; e++) ticks.push(10 ** e);
    else if (log) { const d = nice((10 ** high - 10 ** low) / 4); for (let v = Math.ceil(10 ** low / d) * d; v <= 10 ** high; v += d) ticks.push(v); }
    else { const d = this.base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024))) * nice((high - low) / 4 / 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024)))) : nice((high - low) / 4); for (let v = Math.ceil(low / d) * d; v <= high + d / 1e6; v += d) ticks.push(Math.abs(v) < d / 1e6 ? 0 : v); }
    ctx.beginPath();
    for (const v of ticks) { const y = Math.round(Y(v)) + 0.5; ctx.moveTo(L.left, y); ctx.lineTo(L.right, y); ctx.fillText(this.tick(v, ticks), L.left - 6, y); }
    ctx.stroke();
    ctx.textAlign = 'center';
    const dx = nice((b - a) / Math.max(3, (L.right - L.left) / 58));
    for (let x = Math.ceil(a / dx) * dx; x <= b + dx / 1e6; x += dx) {
      const at = X(x);
      ctx.textAlign = at > L.right - 22 ? 'right' : at < L.left + 16 ? 'left' : 'center';
      ctx.fillText(this.axis.label(x), Math.min(L.right, at), L.bottom + 13);
    }
    ctx.save();
    ctx.beginPath(); ctx.rect(L.left, 0, L.right - L.left, height - 20); ctx.clip();
    for (const m of this.marks) {
      if (m.x < a || m.x > b) continue;
      const x = Math.round(X(m.x)) + 0.5;
      if (m.kind === 'checkpoint') { ctx.fillStyle = colour('faint'); ctx.fillRect(x - 0.5, L.bottom - 6, 1.5, 6); continue; }
      ctx.strokeStyle = ctx.fillStyle = m.kind === 'stall' || m.kind === 'restart' ? colour('bad') : colour('faint');
      ctx.setLineDash([3, 3]); ctx.beginPath(); ctx.moveTo(x, L.top); ctx.lineTo(x, L.bottom); ctx.stroke(); ctx.setLineDash([]);
      ctx.beginPath(); ctx.moveTo(x - 4, L.bottom); ctx.lineTo(x + 4, L.bottom); ctx.lineTo(x, L.bottom - 7); ctx.fill();
    }
    for (const s of this.series) {
      const hue = colour(s.hue), line = this.smoothed(s), n = s.x.length;
      if (!n) continue;
      ctx.strokeStyle = ctx.fillStyle = hue;
      if (s.min !== s.max && n > 1) { // the range of values that share a pixel
        ctx.globalAlpha = this.smooth ? 0.14 : 0.22;
        ctx.beginPath();
        let open = false;
        const edge = [];
        for (let i = 0; i < n; i++) {
          if (s.max[i] === null || (log && s.min[i] <= 0)) continue;
          const x = X(s.x[i]);
          if (open) ctx.lineTo(x, Y(s.max[i])); else { ctx.moveTo(x, Y(s.max[i])); open = true; }
          edge.push([x, Y(s.min[i])]);
        }
        for (let i = edge.length - 1; i >= 0; i--) ctx.lineTo(...edge[i]);
        ctx.fill();
        ctx.globalAlpha = 1;
      }
      ctx.setLineDash(dashes[s.dash || 0]);
      ctx.lineWidth = s.thin ? 1.2 : 1.8; ctx.lineJoin = 'round';
      ctx.beginPath();
      let pen = false, points = 0;
      for (let i = 0; i < n; i++) {
        const v = line[i];
        if (v === null || (log && v <= 0)) { pen = false; continue; }
        if (pen) ctx.lineTo(X(s.x[i]), Y(v)); else ctx.moveTo(X(s.x[i]), Y(v));
        pen = true; points++;
      }
      ctx.stroke(); ctx.setLineDash([]);
      if (points < 40 && !s.thin) for (let i = 0; i < n; i++) { if (line[i] === null || (log && line[i] <= 0)) continue; ctx.beginPath(); ctx.arc(X(s.x[i]), Y(line[i]), 2.4, 0, 7); ctx.fill(); }
    }
    const at = this.axis.cursor;
    if (at !== null && at >= a && at <= b) {
      ctx.fillStyle = colour('soft'); ctx.fillRect(Math.round(X(at)), L.top, 1, L.bottom - L.top);
      for (const s of this.series) {
        const i = nearest(s.x, at);
        if (i < 0 || this.smoothed(s)[i] === null) continue;
        ctx.fillStyle = colour('card'); ctx.strokeStyle = colour(s.hue); ctx.lineWidth = 2;
        ctx.beginPath(); ctx.arc(X(s.x[i]), Y(this.smoothed(s)[i]), 4, 0, 7); ctx.fill(); ctx.stroke();
      }
    }
    if (this.select) { ctx.fillStyle = colour('accent'); ctx.globalAlpha = 0.15; const [p, q] = this.select; ctx.fillRect(Math.min(p, q), L.top, Math.abs(q - p), L.bottom - L.top); ctx.globalAlpha = 1; }
    ctx.restore();
    if (this.empty) { ctx.textAlign = 'center'; ctx.fillStyle = colour('soft'); ctx.fillText('No values in this range', (L.left + L.right) / 2, (L.top + L.bottom) / 2); }
    this.tell();
  }

  tick(v, ticks) {
    if (v === 0) return '0';
    if (this.format !== figure) return trimmed(this.format(v));
    const d = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(v) || 1;
    if (Math.abs(v) >= 1e6 || d < 1e-4) return v.toExponential(Math.max(0, Math.min(6, Math.floor(Math.log10(Math.abs(v))) - Math.floor(Math.log10(d) + 1e-9)))).replace('e+', 'e').replace('-', '−');
    return v.toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(d) + 1e-9)))).replace('-', '−');
  }

  // told is the values at the cursor, in words.
  told() {
    const at = this.axis.cursor;
    return this.series.map((s) => {
      const i = at === null ? lastOf(s) : nearest(s.x, at);
      if (i < 0) return null;
      const v = this.smooth ? this.smoothed(s)[i] : s.mean[i];
      const spread = s.n && s.n[i] > 1 && !this.smooth && s.max[i] !== s.min[i] ? ` (${this.format(s.min[i])} to ${this.format(s.max[i])})` : '';
      return { s, at: s.x[i], words: `${s.name} ${this.format(v)}${spread}`, step: s.step[i] };
    }).filter(Boolean);
  }

  tell() {
    const all = this.told();
    if (!all.length) { text(this.readout, ''); this.keys = ''; return; }
    const where = `${this.axis.cursor === null ? 'Last' : this.axis.words(all[0].at)}: `, keys = all.map((t) => `${t.s.hue}${t.s.dash}`).join();
    if (this.keys !== keys) {
      this.keys = keys;
      this.readout.replaceChildren(el('span'), ...all.map((t) => {
        const line = el('i', { class: t.s.dash ? 'dashed' : '', 'aria-hidden': 'true' });
        line.style.setProperty('border-color', `var(--${t.s.hue})`);
        return el('span', { class: 'serie' }, line, el('span'));
      }));
    }
    text(this.readout.firstChild, where);
    all.forEach((t, i) => text(this.readout.children[i + 1].lastChild, t.words));
  }

  describe() {
    const parts = this.series.map((s) => {
      const v = s.mean.filter((x) => x !== null);
      if (!v.length) return `${s.name}: no values`;
      return `${s.name}: from ${this.format(v[0])} to ${this.format(v[v.length - 1])}, minimum ${this.format(v.reduce((a, b) => Math.min(a, b)))}, maximum ${this.format(v.reduce((a, b) => Math.max(a, b)))}`;
    });
    this.canvas.setAttribute('aria-label', `${this.title}. ${parts.join('. ')}`);
  }

  listen() {
    const c = this.canvas, axis = this.axis;
    const at = (e) => { const r = c.getBoundingClientRect(); return e.clientX - r.left; };
    const value = (x) => { const [a, b] = axis.range(); return a + ((x - this.L.left) / (this.L.right - this.L.left)) * (b - a); };
    c.addEventListener('pointermove', (e) => {
      if (!this.L) return;
      if (this.from !== undefined) { this.select = [this.from, at(e)]; this.draw(); }
      axis.point(value(at(e)));
    });
    c.addEventListener('pointerleave', () => { if (this.from === undefined && document.activeElement !== c) axis.point(null); });
    c.addEventListener('pointerdown', (e) => { if (e.pointerType === 'touch') return; this.from = at(e); c.setPointerCapture(e.pointerId); });
    c.addEventListener('pointerup', (e) => {
      const from = this.from;
      this.from = this.select = undefined;
      if (from === undefined) { axis.point(value(at(e))); return; }
      if (Math.abs(at(e) - from) > 6) axis.set([value(Math.min(from, at(e))), value(Math.max(from, at(e)))]);
      this.draw();
    });
    c.addEventListener('pointercancel', () => { this.from = this.select = undefined; this.draw(); });
    c.addEventListener('dblclick', () => axis.set(null));
    c.addEventListener('wheel', (e) => {
      if (!(document.activeElement === c || e.ctrlKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))) return;
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) axis.pan(e.deltaX / 800);
      else axis.zoom(Math.exp(e.deltaY / 300), value(at(e)));
    }, { passive: false });
    c.addEventListener('keydown', (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const step = (d) => {
        const s = this.series.find((q) => q.x.length);
        if (!s) return;
        const [a, b] = axis.range();
        let i = axis.cursor === null ? (d > 0 ? -1 : s.x.length) : nearest(s.x, axis.cursor);
        i = Math.max(0, Math.min(s.x.length - 1, i + d));
        axis.point(s.x[i]);
        if (s.x[i] < a || s.x[i] > b) axis.set([s.x[i] - (b - a) / 2, s.x[i] + (b - a) / 2]);
        this.tell();
        say(`${axis.words(s.x[i])}: ${this.told().map((t) => t.words).join(', ')}`);
      };
      switch (e.key) {
        case 'ArrowLeft': if (e.shiftKey) axis.pan(-0.2); else step(-1); break;
        case 'ArrowRight': if (e.shiftKey) axis.pan(0.2); else step(1); break;
        case 'PageUp': step(-10); break;
        case 'PageDown': step(10); break;
        case '+': case '=': axis.zoom(0.5); break;
        case '-': case '_': axis.zoom(2); break;
        case '0': case 'Home': axis.set(null); break;
        case 'Escape': axis.point(null); break;
        default: return;
      }
      e.preventDefault();
      e.stopPropagation();
    });
  }

  end() { this.axis.charts.delete(this); this.observer.disconnect(); }
}

function lastOf(s) {
  for (let i = s.mean.length - 1; i >= 0; i--) if (s.mean[i] !== null) return i;
  return -1;
}

function nearest(x, at) {
  if (!x.length) return -1;
  let a = 0, b = x.length - 1;
  while (a < b) { const m = (a + b) >> 1; if (x[m] < at) a = m + 1; else b = m; }
  return a > 0 && Math.abs(x[a - 1] - at) <= Math.abs(x[a] - at) ? a - 1 : a;
}
