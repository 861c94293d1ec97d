// The view "Configuration": the run's keys, its folder and its checkpoints, and what differs between chosen runs.

import { el, table, bytes, shown, count, over } from './dom.js';
import { get } from './net.js';
import { comparison } from './summary.js';

export function setupView(app, id, others) {
  const message = el('div'), between = el('div'), keys = el('section', { class: 'card' }), folder = el('section', { class: 'card' });
  const root = el('div', {}, message, between, el('div', { class: 'columns' }, keys, folder));
  let stop = false, run = null, setup = null;

  async function load() {
    try {
      setup = await get(`api/runs/${id}/config`);
      if (stop) return;
      message.replaceChildren();
      paintKeys(); paintFolder();
    } catch (e) { if (!stop) message.replaceChildren(el('div', { class: 'error' }, el('p', {}, el('strong', {}, 'The configuration could not be read. '), e.message))); }
  }

  function paintKeys() {
    if (keys.dataset.key === JSON.stringify(setup.keys)) return; // so that an opened list stays open
    keys.dataset.key = JSON.stringify(setup.keys);
    keys.replaceChildren(el('header', {}, el('h2', {}, 'Configuration')));
    if (!setup.keys.length) {
      keys.append(el('div', { class: 'empty' }, el('p', {}, 'This server cannot read the config.toml of the run.')));
      return;
    }
    const row = (k) => el('tr', {}, el('th', { scope: 'row' }, el('code', {}, k.key)), el('td', { class: 'words' }, el('code', {}, shown(k.value))), el('td', { class: 'words usual' }, k.value === k.default ? '' : el('code', {}, shown(k.default))));
    const own = setup.keys.filter((k) => k.value !== k.default), heads = [['Key'], ['Value'], ['Default']];
    keys.append(own.length ? table('Keys that differ from their defaults', heads, own.map(row)) : el('p', {}, 'Every key has its default.'),
      el('details', {}, el('summary', {}, `All ${setup.keys.length} keys`), table('All keys', heads, setup.keys.map(row))));
  }

  function paintFolder() {
    const saved = [...setup.checkpoints].reverse();
    folder.replaceChildren(el('header', {}, el('h2', {}, 'Folder and checkpoints')));
    if (!setup.folder) {
      folder.append(el('p', {}, 'This server cannot read the folder of the run.'));
      return;
    }
    const path = /^[\w./+@%:,-]+$/.test(setup.folder) ? setup.folder : `'${setup.folder.replaceAll("'", "'\\''")}'`;
    folder.append(el('p', {}, el('code', { class: 'path' }, setup.folder)));
    if (run && over(run)) folder.append(el('p', {}, 'To continue the run from its last checkpoint:'), el('p', {}, el('code', { class: 'path' }, `engine run ${path}`)));
    folder.append(el('p', {}, 'To use the model:'), el('p', {}, el('code', { class: 'path' }, `engine ${run?.unit === 'samples' ? 'predict' : 'generate'} --from ${path}`)));
    folder.append(saved.length ? table('Checkpoints', [['Step', 'n'], ['Size', 'n'], ['Written'], ['Kept as']], saved.map((c) => el('tr', {}, el('td', { class: 'n' }, count(c.step)), el('td', { class: 'n' }, bytes(c.bytes)), el('td', {}, c.written_ms ? new Date(c.written_ms).toLocaleString() : '–'), el('td', { class: 'words' }, [c.last ? 'last' : '', c.best ? 'best' : '', c.weights ? 'weights alone' : '', c.problem || ''].filter(Boolean).join(', ')))), { tall: saved.length > 12 })
      : el('p', {}, 'There is no checkpoint yet.'));
  }

  load();
  if (others.length) comparison([id, ...others.filter((o) => o !== id)]).then((c) => { if (!stop) between.replaceChildren(c); }, (e) => between.replaceChildren(el('div', { class: 'error' }, el('p', {}, e.message))));
  return {
    element: root,
    on: {
      run(d) { const first = !run || over(run) !== over(d); run = d; if (first && setup) load(); },
      marks(all) { if (setup && all.some((m) => m.kind === 'checkpoint')) load(); },
    },
    end() { stop = true; }, theme() {},
  };
}
