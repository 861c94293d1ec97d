// The view "Model": layers by stage with parameters, memory and time, their norms, and samples.

import { el, table, some, bytes, figure, pct } from './dom.js';
import { get } from './net.js';
import { meter } from './now.js';

export function modelView(app, id) {
  const stages = el('section', { class: 'card' }), layers = el('section', { class: 'card' }), samples = el('section', { class: 'card' }), message = el('div');
  const root = el('div', {}, message, stages, layers, samples);
  let over = false, last = -1, wide = false;

  async function load() {
    try {
      const [m, s] = await Promise.all([get(`api/runs/${id}/model`), get(`api/runs/${id}/samples`)]);
      if (over) return;
      message.replaceChildren();
      paintStages(m); paintLayers(m); paintSamples(s.samples);
    } catch (e) { message.replaceChildren(el('div', { class: 'error' }, el('p', {}, el('strong', {}, 'The model data could not be read. '), e.message))); }
  }

  function paintStages(m) {
    stages.replaceChildren(el('header', {}, el('h2', {}, 'Stages')));
    if (!m.stages.length) {
      stages.append(el('div', { class: 'empty' }, el('p', {}, 'No data yet. To see parameters and memory, set ', el('code', {}, 'run.stats_every'), '. To see the time of each stage, watch the run live or set ', el('code', {}, 'run.trace_every'), '.')));
      return;
    }
    const most = Math.max(...m.stages.map((s) => s.share)) || 1;
    stages.append(table('Stages of the pipeline', [['Stage'], ['Parameters', 'n'], ['Peak memory', 'n'], ['Compute share', 'n'], ['Relative to largest', 'optional'], ['Chunks']], m.stages.map((s) => el('tr', {}, el('th', { scope: 'row' }, String(s.stage)), el('td', { class: 'n' }, s.params ? some(s.params) : '–'), el('td', { class: 'n' }, bytes(s.mem_bytes)), el('td', { class: 'n' }, s.share ? pct(100 * s.share) : '–'), el('td', { class: 'grow optional' }, meter([[s.share / most, 'accent']])), el('td', {}, chunksOf(s)))), { tall: m.stages.length > 16 }));
    if (m.traced >= 0) stages.append(el('p', { class: 'readout' }, `The compute share is each stage’s part of all ranks' compute time in step ${m.traced}.`));
  }

  function chunksOf(s) {
    if (s.chunks.length <= 1) return s.chunks.join('');
    const shown = s.chunks.slice(0, 6).map((c, i) => `${c} (${pct(100 * s.chunk_shares[i])})`).join(', ');
    return s.chunks.length > 6 ? `${shown} and ${s.chunks.length - 6} more` : shown;
  }

  function paintLayers(m) {
    layers.replaceChildren(el('header', {}, el('h2', {}, 'Layers')));
    if (!m.layers.length) {
      layers.append(el('div', { class: 'empty' }, el('p', {}, 'The run writes weight and gradient norms of each layer every ', el('code', {}, 'run.stats_every'), ' steps. ', m.stats_every === 0 ? 'It is 0 in this run: set it to 100, for example.' : 'It has written none yet.')));
      return;
    }
    const rows = [];
    let stage = null;
    for (const l of m.layers) {
      if (l.stage !== stage) { stage = l.stage; rows.push(el('tr', { class: 'group' }, el('th', { colspan: '6', scope: 'colgroup' }, `Stage ${stage}`))); }
      rows.push(el('tr', {}, el('th', { scope: 'row' }, l.name), el('td', { class: 'n' }, some(l.params)), el('td', { class: 'n' }, figure(l.weight_norms.at(-1))), el('td', { class: 'optional' }, spark(l.weight_norms, `weight norm of ${l.name}`)), el('td', { class: 'n' }, figure(l.grad_norms.at(-1))), el('td', { class: 'optional' }, spark(l.grad_norms, `gradient norm of ${l.name}`))));
    }
    layers.append(table('Layers with their weight and gradient norms', [['Layer'], ['Parameters', 'n'], ['Weight norm', 'n'], ['Over the run', 'optional'], ['Gradient norm', 'n'], ['Over the run', 'optional']], rows));
    layers.append(el('p', { class: 'readout' }, `Norms of step ${m.step}. The curves show ${m.steps.length} steps from step ${m.steps[0]}.`));
  }

  function paintSamples(all) {
    samples.replaceChildren(el('header', {}, el('h2', {}, 'Samples')));
    if (!all.length) {
      samples.append(el('div', { class: 'empty' }, el('p', {}, 'No samples yet. Set ', el('code', {}, 'run.sample_tokens = 100'), ' to have the model write a text at each validation.')));
      return;
    }
    const one = (s) => [el('h3', {}, `Step ${s.step}`), el('div', { class: 'sample', tabindex: '0', role: 'region', 'aria-label': `Sample of step ${s.step}` }, el('b', {}, s.prompt), s.text.trim() ? s.text.replace(/\n\s*\n\s*\n/g, '\n\n') : el('em', {}, s.text ? ' (only white space)' : ' (empty)'))];
    const newest = all.slice(-30).reverse();
    samples.append(...newest.slice(0, 4).flatMap(one));
    if (newest.length > 4) samples.append(el('details', { open: wide }, el('summary', { onclick: () => { wide = !wide; } }, `${newest.length - 4} earlier samples`), ...newest.slice(4).flatMap(one)));
  }

  load();
  return {
    element: root,
    on: {
      run(d) { if (d.step - last >= 1 && (last < 0 || performance.now() - root.at > 5000)) { last = d.step; root.at = performance.now(); load(); } },
      marks(ms) { if (ms.some((m) => m.kind === 'sample')) load(); },
    },
    end() { over = true; },
    theme() {},
  };
}

// spark is a small curve.
function spark(values, name) {
  const v = values.map((x) => (x === null ? NaN : x)), ok = v.filter(isFinite);
  if (ok.length < 2) return '';
  const low = Math.min(...ok), high = Math.max(...ok), ns = 'http://www.w3.org/2000/svg';
  let d = '', pen = false;
  v.forEach((x, i) => {
    if (!isFinite(x)) { pen = false; return; }
    d += `${pen ? 'L' : 'M'}${(1 + 118 * i / (v.length - 1)).toFixed(1)} ${(20 - 18 * ((x - low) / (high - low || 1))).toFixed(1)}`;
    pen = true;
  });
  const svg = document.createElementNS(ns, 'svg'), path = document.createElementNS(ns, 'path');
  svg.setAttribute('viewBox', '0 0 120 22'); svg.setAttribute('class', 'spark'); svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${name}: from ${figure(ok[0])} to ${figure(ok.at(-1))}, minimum ${figure(low)}, maximum ${figure(high)}`);
  path.setAttribute('d', d);
  svg.append(path);
  return svg;
}
