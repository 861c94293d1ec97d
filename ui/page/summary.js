// What the first page of a run shows besides its pipeline: the loss, and the configuration. And what differs between runs.

import { el, figure, short, count, duration, table, shown, stepOf, rate } from './dom.js';
import { figures } from './figures.js';
import { get } from './net.js';
import { Axis, Chart, runColours } from './plot.js';

// lossCard is a chart of all losses of a run, which follows it.
export function lossCard(id) {
  let stop = false, busy = false, last = -1, due = 0, timer = null;
  const axis = new Axis(() => load());
  const of = figures.filter((f) => f.chart === 'loss'), chart = new Chart(axis, 'Loss', '', figure);
  const empty = el('p', { class: 'none' }, 'The curve appears after the first step.');
  chart.element.append(empty);

  async function load() {
    if (busy || stop) return;
    busy = true;
    try {
      const width = Math.max(200, Math.min(1600, Math.round(chart.element.clientWidth) || 600));
      const [a, b] = axis.view || [0, 0], pad = (b - a) / 2, range = axis.view ? `&from=${Math.max(0, a - pad)}&to=${b + pad}` : '';
      const got = (await get(`api/runs/${id}/curves?names=${of.map((f) => f.name).join(',')}&buckets=${axis.view ? 2 * width : width}${range}`)).curves;
      if (stop) return;
      const series = of.map((f, i) => ({ ...got[f.name], name: f.line, hue: runColours[i], dash: i })).filter((s) => s.x?.length);
      if (!axis.view && series.length) {
        const low = Math.min(...series.map((s) => s.x[0])), high = Math.max(...series.map((s) => s.x.at(-1)));
        axis.all = [low, high > low ? high : low + 1];
      }
      empty.hidden = series.length > 0;
      chart.set(series, []);
    } catch { /* the head of the page reports a lost connection */ } finally { busy = false; }
  }
  load();
  return {
    element: chart.element,
    run(d) {
      if (stop || d.step === last) return;
      last = d.step;
      const now = performance.now();
      clearTimeout(timer);
      if (now < due) { timer = setTimeout(load, due - now); return; }
      due = now + 2000;
      load();
    },
    end() { stop = true; clearTimeout(timer); chart.end(); },
    draw() { axis.draw(); },
  };
}

// The keys that a reader looks for even if they have their defaults.
const essential = ['run.steps', 'model.family', 'model.layers', 'model.hidden', 'model.context', 'data.train', 'data.tokenizer', 'batch.sequences', 'optimizer.lr'];

// setupCard is a short form of a run's configuration: the values that differ from their defaults, and essential ones.
export function setupCard(id) {
  const card = el('section', { class: 'card setup', hidden: true });
  let known = false, due = 0;
  async function load() {
    if (known || performance.now() < due) return; // a live run calls it ten times a second
    due = Infinity;
    try {
      const { keys } = await get(`api/runs/${id}/config`);
      if (keys.length) {
        known = true;
        card.hidden = false;
        card.replaceChildren(el('header', {}, el('h2', {}, 'Configuration'), el('a', { href: `#/run/${id}/config` }, 'All keys')), setupList(keys.filter((k) => k.value !== k.default || essential.includes(k.key))));
      }
    } catch { /* the run has none that this server can read */ } finally { due = performance.now() + 2000; }
  }
  load();
  return { element: card, run: load };
}

function setupList(keys) {
  return el('div', { class: 'setup-list', tabindex: '0', role: 'region', 'aria-label': 'Configuration' }, el('dl', { class: 'setup' }, keys.map((k) => el('div', { class: k.value === k.default ? 'usual' : '' }, el('dt', {}, k.key), el('dd', {}, shown(k.value), k.value === k.default ? el('small', {}, ' default') : '')))));
}

// comparison shows the results of several runs beside each other, and the keys that differ.
export async function comparison(ids) {
  const [diff, { runs }] = await Promise.all([get(`api/diff?runs=${ids.join(',')}`), get('api/runs')]);
  const differences = diff.differences.filter((x) => x.key !== 'run.name' && x.key !== 'run.out'); // the columns have the names
  const all = ids.map((id) => runs.find((d) => d.id === id)).filter(Boolean);
  const rows = [
    ['Step', stepOf], ['Last loss', (d) => figure(d.loss)], ['Last validation loss', (d) => figure(d.val_loss)],
    ['Best validation loss', (d) => (d.best_val_loss === null ? '–' : `${figure(d.best_val_loss)} at step ${count(d.best_step)}`)],
    ['Learning rate, peak', (d) => rate(d.peak_lr)], ['Tokens/s, median', (d) => short(d.medians?.tokens_per_s)], ['Time of all steps', (d) => (d.seconds ? duration(d.seconds) : '–')], ['Parameters', (d) => (d.parameters ? short(d.parameters) : '–')],
  ];
  const best = Math.min(...all.map((d) => d.best_val_loss ?? Infinity));
  const bits = diff.bits_per_byte, vocab = bits.length > 0; // losses per token of other vocabularies cannot be compared
  if (vocab) rows.splice(4, 0, ['Bits per byte, best', (d) => figure(bits[ids.indexOf(d.id)])]);
  return el('section', { class: 'card' }, el('header', {}, el('h2', {}, 'Comparison')),
    diff.remarks.length ? el('ul', { class: 'note remarks' }, diff.remarks.map((r) => el('li', {}, r[0].toUpperCase() + r.slice(1) + '.'))) : '',
    table('Results of the runs', [['Result'], ...all.map((d) => [d.name])], rows.map(([name, words]) => el('tr', {}, el('th', { scope: 'row' }, name), all.map((d) => el('td', {}, name.startsWith('Best') && d.best_val_loss === best && !vocab ? el('strong', {}, words(d)) : words(d)))))),
    el('h3', {}, 'Configuration differences'),
    differences.length ? table('Configuration differences', [['Key'], ...ids.map((id) => [runs.find((d) => d.id === id)?.name || id])], differences.map((x) => el('tr', {}, el('th', { scope: 'row' }, el('code', {}, x.key)), x.values.map((v) => el('td', {}, el('code', {}, v ? shown(v) : '–'))))))
      : el('p', {}, 'The configurations are identical, or this server cannot read them.'));
}

