// The view "Curves": the metrics of one run or several, over steps, tokens or time.

import { el, figure, short, place, bytes, duration, writers } from './dom.js';
import { figures } from './figures.js';
import { get } from './net.js';
import { Axis, Chart, runColours } from './plot.js';
import { setupCard, comparison } from './summary.js';
import { compared } from './list.js';

// The charts in their order, and the metrics of each. Charts that no run has data for are left out.
const kinds = figures.filter((f) => f.chart === f.name).map((f) => ({
  title: f.title, help: f.help, names: figures.filter((l) => l.chart === f.name).map((l) => l.name), smooth: true, zero: f.zero, log: !f.zero, ideal: f.name === 'bubble_pct',
  format: writers[f.unit] || short, unit: writers[f.unit] ? '' : f.unit, base: f.unit === 'bytes' ? 1024 : 10,
}));
kinds.splice(kinds.findIndex((k) => k.base === 1024), 0, { title: 'Memory by rank', names: [], zero: true, memory: true, format: bytes, base: 1024 });

const label = Object.fromEntries(figures.map((f) => [f.name, f.line]));

export function curvesView(app, id, others) {
  let by = 'steps', chosen = [id, ...others.filter((o) => o !== id)], runs = [], smooth = 0, log = false, charts = [], stop = false, timer = null, names = {}, marks = {}, memory = {}, busy = false, again = false, whole = 0;
  const axis = new Axis(() => load(false));
  axis.label = (x) => (by === 'seconds' ? duration(x) : place(x));
  axis.words = (x) => (by === 'steps' ? `Step ${Math.round(x)}` : by === 'tokens' ? `${short(x)} tokens` : `After ${duration(x)}`);
  const picks = el('div', { class: 'chips', role: 'group', 'aria-label': 'Runs to show' });
  const over = el('select', { onchange: () => { by = over.value; axis.view = null; axis.cursor = null; load(true); } },
    el('option', { value: 'steps' }, 'steps'), el('option', { value: 'tokens' }, 'tokens'), el('option', { value: 'seconds' }, 'time'));
  const value = el('span', { class: 'num' }, 'off');
  const slider = el('input', { type: 'range', min: '0', max: '0.99', step: '0.01', value: '0', oninput: () => { smooth = Number(slider.value); value.textContent = smooth ? smooth.toFixed(2) : 'off'; apply(); } });
  const logBox = el('input', { type: 'checkbox', onchange: () => { log = logBox.checked; apply(); } });
  const bar = el('div', { class: 'bar' }, el('label', {}, 'X axis ', over), el('label', {}, 'Smoothing ', slider, value), el('label', {}, logBox, 'Log scale'),
    el('button', { type: 'button', onclick: () => axis.zoom(0.5) }, 'Zoom in'), el('button', { type: 'button', onclick: () => axis.set(null) }, 'Whole run'));
  const message = el('div'), grid = el('div', { class: 'charts first' }), diff = el('div', { class: 'between' }), setup = setupCard(id);
  const root = el('div', {}, el('div', { class: 'bar runs-shown' }, picks), bar, message, grid);

  const nameOf = (r) => runs.find((x) => x.id === r)?.name || r;
  const hueOf = (r) => runColours[Math.max(0, chosen.indexOf(r)) % runColours.length];

  function apply() {
    for (const c of charts) { c.smooth = c.kind.smooth ? smooth : 0; c.log = !!c.kind.log && log; c.draw(); }
  }

  async function start() {
    try {
      runs = (await get('api/runs')).runs;
    } catch (e) { fail(e); return; }
    chosen = chosen.filter((c) => runs.some((r) => r.id === c)).slice(0, compared);
    picks.replaceChildren(...(runs.length > 1 ? runs.slice(0, 60).map((r) => {
      const box = el('input', { type: 'checkbox', checked: chosen.includes(r.id), onchange: () => {
        chosen = box.checked ? [...chosen, r.id].slice(0, compared) : chosen.filter((c) => c !== r.id || c === id);
        box.checked = chosen.includes(r.id);
        history.replaceState(null, '', `#/run/${id}/curves${chosen.length > 1 ? `?with=${chosen.filter((c) => c !== id).join(',')}` : ''}`);
        app.tabs();
        axis.view = null;
        paintPicks(); load(true); compare();
      } });
      return el('label', { 'data-run': r.id }, box, r.name);
    }) : []));
    paintPicks();
    await load(true);
    compare();
  }

  function paintPicks() {
    for (const l of picks.children) {
      const r = l.dataset.run;
      l.firstChild.style.setProperty('--hue', chosen.includes(r) ? `var(--${hueOf(r)})` : 'transparent');
    }
  }

  function fail(e) { message.replaceChildren(el('div', { class: 'error' }, el('p', {}, el('strong', {}, 'The metrics could not be read. '), e.message))); }

  // load requests the visible range, one point for each pixel.
  async function load(all) {
    if (busy) { again = all || again === 'whole' ? 'whole' : 'part'; return; }
    busy = true;
    try {
      await fetchAll(all);
      message.replaceChildren();
    } catch (e) { if (!stop) fail(e); }
    busy = false;
    if (again && !stop) { const w = again === 'whole'; again = false; load(w); }
  }

  async function fetchAll(all) {
    const width = Math.max(200, Math.min(1600, Math.round(root.clientWidth / (root.clientWidth > 960 ? 2 : 1)) || 600));
    if (all) {
      whole = performance.now();
      await Promise.all(chosen.map(async (r) => {
        names[r] = (await get(`api/runs/${r}/names`)).names;
        marks[r] = await get(`api/runs/${r}/marks`);
        memory[r] = await get(`api/runs/${r}/model`).then((m) => ({ steps: m.steps, mem: m.mem_bytes }), () => null);
      }));
    }
    const had = new Set(Object.values(names).flat());
    const sets = [...had].filter((n) => n.startsWith('val_losses.')).sort();
    const own = [...had].filter((n) => n.startsWith('metrics.') || n.startsWith('val_metrics.')).map((n) => n.replace(/^val_/, '').slice(8));
    const drawn = [...kinds.map((k) => (k.names.includes('val_loss') && sets.length ? { ...k, names: [...k.names, ...sets] } : k)), ...[...new Set(own)].sort().map((n) => ({ title: n, names: [`metrics.${n}`, `val_metrics.${n}`], smooth: true }))].filter((k) => k.names.some((n) => had.has(n)) || (k.memory && by === 'steps' && chosen.length === 1 && memory[chosen[0]]?.mem.some((m) => m?.length)));
    if (!drawn.length) {
      message.replaceChildren(el('div', { class: 'empty' }, el('h2', {}, 'No metrics yet'), el('p', {}, 'The curves appear after the first step, when the run writes the first line of metrics.jsonl.')));
      for (const c of charts) c.end();
      charts = [];
      grid.dataset.key = '';
      grid.replaceChildren();
      return;
    }
    const key = drawn.map((k) => k.title).join('|');
    if (grid.dataset.key !== key) {
      grid.dataset.key = key;
      for (const c of charts) c.end();
      charts = drawn.map((k) => { const c = new Chart(axis, k.title, k.unit, k.format || figure); c.kind = k; c.heading.title = k.help || ''; c.zero = !!k.zero; c.base = k.base || 10; return c; });
      grid.replaceChildren(charts[0].element, setup.element, diff, ...charts.slice(1).map((c) => c.element));
      apply();
    }
    const [a, b] = axis.view || [null, null], pad = axis.view ? (b - a) * 0.5 : 0;
    const range = axis.view ? `&from=${Math.max(0, a - pad)}&to=${b + pad}` : '';
    const wanted = [...new Set(drawn.flatMap((k) => k.names))].filter((n) => had.has(n));
    const parts = [];
    for (let i = 0; i < wanted.length; i += 12) parts.push(wanted.slice(i, i + 12));
    const got = {};
    await Promise.all(chosen.map(async (r) => {
      got[r] = {};
      for (const p of parts) Object.assign(got[r], (await get(`api/runs/${r}/curves?names=${encodeURIComponent(p.join(','))}&by=${by}&buckets=${axis.view ? 2 * width : width}${range}`)).curves);
    }));
    if (stop) return;
    if (!axis.view) {
      let low = Infinity, high = -Infinity;
      for (const r of chosen) for (const s of Object.values(got[r])) if (s.x.length) { low = Math.min(low, s.x[0]); high = Math.max(high, s.x[s.x.length - 1]); }
      axis.all = isFinite(low) ? [low, high > low ? high : low + 1] : [0, 1];
    }
    for (const c of charts) {
      const series = [];
      for (const r of chosen) {
        c.kind.names.forEach((n, i) => {
          const s = got[r][n];
          if (!s || !s.x.length) return;
          const many = chosen.length > 1;
          series.push({ ...s, name: many ? `${nameOf(r)}${i || c.kind.names.length > 1 ? ` ${label[n] || (n.startsWith('val_losses.') && n.slice(11)) || n.split('.')[0].replace('val_metrics', 'validation').replace('metrics', 'training')}` : ''}` : label[n] || (n.startsWith('val_losses.') ? `validation: ${n.slice(11)}` : n.startsWith('val_') ? `validation ${c.title}` : c.title), hue: many ? hueOf(r) : runColours[i], dash: i });
        });
        if (c.kind.ideal) {
          const ideal = runs.find((x) => x.id === r)?.ideal_bubble_pct;
          if (ideal !== null && ideal !== undefined) { const x = axis.all; series.push({ name: chosen.length > 1 ? `${nameOf(r)} ideal` : 'ideal', hue: chosen.length > 1 ? hueOf(r) : 'r1', dash: 1, thin: true, x, step: [0, 0], min: [ideal, ideal], max: [ideal, ideal], mean: [ideal, ideal] }); }
        }
        if (c.kind.memory && by === 'steps' && chosen.length === 1 && memory[r]?.mem.some((m) => m?.length)) {
          const m = memory[r], ranks = Math.min(8, m.mem.at(-1)?.length || 0);
          for (let k = 0; k < ranks; k++) { const v = m.mem.map((x) => x?.[k] ?? null); series.push({ name: `rank ${k}`, hue: runColours[k % 8], dash: k % 8, x: m.steps, step: m.steps, min: v, max: v, mean: v }); }
        }
      }
      c.set(series, by === 'steps' ? marksOf() : []);
    }
  }

  function marksOf() {
    const m = marks[chosen[0]];
    if (!m) return [];
    const kept = ['restart', 'replace', 'resume', 'stall', 'rate', 'pause'];
    const all = m.marks.filter((x) => kept.includes(x.kind) && x.step > 0).map((x) => ({ x: x.step, kind: x.kind, text: x.text }));
    const saved = new Set([...m.checkpoints, ...m.marks.filter((x) => x.kind === 'checkpoint').map((x) => x.step)]);
    return [...all, ...[...saved].map((x) => ({ x, kind: 'checkpoint' }))];
  }

  async function compare() {
    setup.element.classList.toggle('left-out', chosen.length > 1);
    if (chosen.length < 2) { diff.replaceChildren(); return; }
    try {
      const c = await comparison(chosen);
      if (!stop) diff.replaceChildren(c);
    } catch (e) { diff.replaceChildren(el('div', { class: 'error' }, el('p', {}, e.message))); }
  }

  let lastStep = -1, due = 0;
  const fresh = () => !charts.length || performance.now() - whole > 10000; // there may be new metrics
  start();
  return {
    element: root,
    on: {
      run(d) {
        const i = runs.findIndex((r) => r.id === d.id);
        if (i >= 0) runs[i] = d;
        setup.run();
        if (d.step === lastStep || stop) return;
        lastStep = d.step;
        const now = performance.now();
        if (now < due) { clearTimeout(timer); timer = setTimeout(() => load(fresh()), due - now); return; }
        due = now + 2000;
        load(fresh());
      },
      marks() { get(`api/runs/${id}/marks`).then((m) => { marks[id] = m; }, () => {}); },
    },
    end() { stop = true; clearTimeout(timer); for (const c of charts) c.end(); },
    theme() { axis.draw(); },
  };
}
