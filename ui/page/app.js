// The page: the run and the view that the address names, the run's headline, the theme and the shortcuts.

import { el, text, figure, short, pct, plural, count, duration, freshColours, say, writers, over as ended } from './dom.js';
import { figures } from './figures.js';
import { get, follow, takeToken, keepToken, token } from './net.js';
import { nowView } from './now.js';
import { curvesView } from './curves.js';
import { modelView } from './model.js';
import { controlView } from './control.js';
import { setupView } from './setup.js';
import { listView, pill, stateWords } from './list.js';

takeToken();

const main = document.getElementById('main'), tabs = document.getElementById('tabs');
const views = { now: ['Overview', nowView], curves: ['Curves', curvesView], model: ['Model', modelView], config: ['Configuration', setupView], control: ['Control', controlView] };
const app = { me: null, tabs() { paintTabs(route()); }, async whoami() { try { this.me = await get('api/me'); } catch { this.me = null; } current?.me?.(); } };
let current = null, stopFollowing = null, listing = null, entered = false;

// The theme: the system's, or the one that was chosen.
const themeButton = document.getElementById('theme'), dark = matchMedia('(prefers-color-scheme: dark)');
let theme = 'auto';
try { theme = localStorage.getItem('troupe-theme') || 'auto'; } catch { /* stay with auto */ }
function paintTheme() {
  document.documentElement.dataset.theme = theme === 'auto' ? (dark.matches ? 'dark' : 'light') : theme;
  text(themeButton, { auto: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' }[theme]);
  freshColours();
  current?.theme?.();
}
themeButton.addEventListener('click', () => {
  theme = { auto: 'light', light: 'dark', dark: 'auto' }[theme];
  try { localStorage.setItem('troupe-theme', theme); } catch { /* for this page only */ }
  paintTheme();
});
dark.addEventListener('change', paintTheme);
paintTheme();

// Keys.
const keys = [
  ['?', 'Show this list'], ['1 … 5', 'Open Overview, Curves, Model, Configuration or Control'], ['r', 'Open the list of runs'], ['t', 'Switch the theme'],
  ['← →', 'In a drawing: select the previous or next action or value'], ['↑ ↓', 'In the pipeline: select the stage above or below'], ['n p', 'In the pipeline: follow the next or previous microbatch'],
  ['Shift + ← →', 'Move the visible range'], ['+ −', 'Zoom in or out'], ['0', 'Show the whole step or run'], ['Enter', 'In the pipeline: select the action in the middle'], ['Escape', 'Clear the selection, or close the dialog'],
];
function help() {
  if (document.querySelector('dialog[open]')) return;
  const close = el('button', { type: 'button', class: 'main', onclick: () => d.close() }, 'Close');
  const d = el('dialog', { 'aria-labelledby': 'keys-title' }, el('h2', { id: 'keys-title' }, 'Keyboard shortcuts'), el('p', {}, 'Press Tab to focus a drawing. The mouse wheel zooms a focused drawing; hold Ctrl to zoom any drawing. Drag to move the pipeline, or to select a range of a curve.'),
    el('dl', { class: 'keys' }, keys.map(([k, what]) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, what)]).flat()), el('div', { class: 'ask' }, close));
  d.addEventListener('close', () => { d.remove(); document.getElementById('help').focus(); });
  document.body.append(d);
  d.showModal();
  close.focus();
}
document.getElementById('help').addEventListener('click', help);
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) || document.querySelector('dialog[open]')) return;
  const { run } = route();
  const n = '12345'.indexOf(e.key);
  if (e.key === '?') help();
  else if (e.key === 't') themeButton.click();
  else if (e.key === 'r') location.hash = '#/';
  else if (n >= 0 && e.key && run) location.hash = `#/run/${run}/${Object.keys(views)[n]}`;
  else return;
  e.preventDefault();
});
document.getElementById('skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });

// route reads the address: #/run/ID/VIEW?with=ID,ID.
function route() {
  const [path, query] = location.hash.slice(1).split('?');
  const [, what, run, view] = path.split('/');
  const more = new URLSearchParams(query || '');
  return what === 'run' && run ? { run, view: views[view] ? view : '', with: (more.get('with') || '').split(',').filter(Boolean) } : {};
}

async function show() {
  if (location.hash.startsWith('#token=')) { takeToken(); await app.whoami(); }
  stopFollowing?.();
  stopFollowing = null;
  clearInterval(listing);
  current?.end?.();
  current = null;
  const r = route();
  if (!r.run) { await showList(); return; }
  entered = true;
  if (r.view) { showRun(r); return; }
  const hash = location.hash;
  try {
    const d = await get(`api/runs/${r.run}`);
    if (location.hash === hash) location.replace(`#/run/${r.run}/${opening(d)}`);
  } catch (e) { if (location.hash === hash) refused(e); }
}

// opening is the view on which a run opens. What has ended, or was not recorded, has little to show but its curves.
const opening = (d) => ((ended(d) || d.state === 'quiet' || !(d.live || d.traced)) && d.step ? 'curves' : 'now');

function paintTabs(r) {
  const more = r.with?.length ? `?with=${r.with.join(',')}` : '';
  tabs.replaceChildren(...(r.run ? [el('a', { href: '#/', class: 'back' }, 'Runs'), ...Object.entries(views).map(([k, [name]]) => el('a', { href: `#/run/${r.run}/${k}${k === 'curves' || k === 'config' ? more : ''}`, 'aria-current': k === r.view ? 'page' : null }, name))] : []));
}

function refused(e) {
  const needs = e.status === 401 || e.status === 403;
  const input = el('input', { type: 'password', id: 'reading-token', autocomplete: 'off' });
  main.replaceChildren(el('h1', {}, needs ? 'This server needs an access token' : 'The server did not answer'), el('p', {}, e.message),
    needs ? el('form', { class: 'bar', onsubmit: (x) => { x.preventDefault(); keepToken(input.value.trim()); app.whoami(); show(); } }, el('label', { for: 'reading-token' }, 'Access token'), input, el('button', { class: 'main' }, 'Use token'))
      : el('p', {}, el('button', { type: 'button', onclick: show }, 'Try again')));
}

async function showList() {
  paintTabs({});
  document.title = 'Runs · Troupe';
  const title = el('h1', {}, 'Runs'), none = el('div', { class: 'empty' }, el('h2', {}, 'No runs yet'), el('p', {}, 'Start a run with ', el('code', {}, 'engine run config.toml'), '. It appears here as soon as it creates its folder.'));
  const list = listView();
  let first = true;
  const load = async () => {
    let runs;
    try { runs = (await get('api/runs')).runs; } catch (e) { if (first) refused(e); return; }
    if (route().run) return;
    const live = runs.filter((d) => d.live), one = live.length === 1 ? live : runs; // a page that came with a run opens on it
    if (first && one.length === 1 && !entered) { location.replace(`#/run/${one[0].id}`); return; }
    const what = runs.length ? list.element : none;
    if (first || !main.contains(what)) main.replaceChildren(title, what);
    first = false;
    list.show(runs);
  };
  await load();
  listing = setInterval(() => { if (document.visibilityState === 'visible') load(); }, 2000);
}

function showRun(r) {
  paintTabs(r);
  const head = el('div', { class: 'head' }), bar = el('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Progress', 'aria-valuemin': '0', 'aria-valuemax': '100' }, el('div')), facts = el('dl', { class: 'facts' }), message = el('div');
  const view = views[r.view][1](app, r.run, r.with);
  current = view;
  main.replaceChildren(head, bar, facts, message, view.element);
  document.title = `${views[r.view][0]} · Troupe`;
  let state = '', pace = 0;

  function paint(d) {
    document.title = `${d.name} · ${views[r.view][0]} · Troupe`;
    if (state && state !== d.state) say(`State of the run: ${stateWords(d)}`);
    state = d.state;
    const about = [d.model, d.parameters ? `${short(d.parameters)} parameters` : '', ...(d.stages > 1 ? [d.schedule, plural(d.stages, 'stage')] : []), d.chunks > d.stages ? plural(d.chunks, 'chunk') : '', d.microbatches && d.stages > 1 ? plural(d.microbatches, 'microbatch').replace('microbatchs', 'microbatches') : '', d.ranks > d.stages ? plural(d.ranks, 'rank') : ''].filter(Boolean).join(' · ');
    const h = `${d.name}|${d.text}|${d.state}|${about}`;
    if (head.dataset.key !== h) {
      head.dataset.key = h;
      head.replaceChildren(el('h1', {}, d.text && d.text !== d.name ? `${d.name}` : d.name), pill(d), el('span', { class: 'about' }, about));
    }
    const done = d.steps ? Math.min(100, 100 * d.step / d.steps) : 0;
    bar.firstChild.style.setProperty('width', `${done}%`);
    bar.setAttribute('aria-valuenow', done.toFixed(1));
    const unit = d.unit === 'samples' ? 'samples/s' : 'tokens/s';
    if (d.step_ms) pace = pace ? 0.95 * pace + 0.05 * d.step_ms : d.step_ms;
    const left = d.steps > d.step && pace && d.state === 'running' ? duration((d.steps - d.step) * pace / 1000) : '';
    const typical = d.medians || {}, value = (f) => typical[f.name] ?? d[f.name];
    const more = { tokens_per_s: unit, bubble_pct: d.ideal_bubble_pct !== null ? `ideal ${pct(d.ideal_bubble_pct)}` : '', peak_pct: 'of the processor’s peak' };
    const shown = figures.filter((f) => f.machine && (value(f) !== null || !d.step) && (f.name !== 'bubble_pct' || d.stages > 1) && f.name !== 'cpu_cores');
    const all = [['Step', count(d.step), !d.steps ? '' : d.step > d.steps ? `run.steps is ${count(d.steps)}` : `of ${count(d.steps)}${left ? `, ${left} left` : ''}`],
      ['Loss', figure(d.loss), '', 'Training loss of the last step.'],
      ['Validation loss', figure(d.val_loss), d.val_step ? `at step ${count(d.val_step)}` : '', 'Loss of the last validation.'],
      ['Best validation', figure(d.best_val_loss), d.best_val_loss !== null ? `at step ${count(d.best_step)}` : '', 'The lowest validation loss.'],
      ['Time', d.seconds ? duration(d.seconds) : '–', '', 'Time of all steps.'],
      ...shown.map((f) => [f.name === 'peak_pct' ? 'MFU' : f.title, (f.unit === '%' ? pct : writers[f.unit] || short)(value(f)), [more[f.name] ?? (writers[f.unit] ? '' : f.unit), f.name in typical ? 'median' : ''].filter(Boolean).join(', '), f.name in typical ? f.help.replace('the last step', 'a step, median of all steps') : f.help])];
    const titles = all.map(([title]) => title).join('|');
    if (facts.dataset.key !== titles) {
      facts.dataset.key = titles;
      facts.replaceChildren(...all.map(([title, , , help]) => el('div', { title: help }, el('dt', {}, title), el('dd', {}, el('span'), el('small')))));
    }
    all.forEach(([, v, more], i) => { const dd = facts.children[i].lastChild; text(dd.firstChild, v); text(dd.lastChild, v === '–' ? '' : more); });
    const note = d.state === 'failed' ? ['error', 'The run failed. ', d.error] : d.error ? ['error', 'A file of this run cannot be read. ', d.error] : d.live && d.state === 'ended' ? ['note', 'The run finished. ', 'The page keeps the data that it has loaded. engine ui shows the run again.'] : d.live && d.state === 'stopped' ? ['note', 'The run was stopped. ', 'Rerun the same command to resume from its last checkpoint.'] : d.state === 'quiet' && d.step ? ['note', 'No updates for a while. ', 'No process is writing to the folder. The run may have been stopped or killed.'] : null;
    const k = note?.join('|') || '';
    if (message.dataset.key !== k) { message.dataset.key = k; message.replaceChildren(...(note ? [el('div', { class: note[0] }, el('p', {}, el('strong', {}, note[1]), note[2]))] : [])); }
  }

  let over = false;
  const on = { ...view.on, run(d) { paint(d); if (ended(d)) over = true; view.on.run?.(d); } };
  on.broken = (e) => {
    if (over) return; // the server may have ended with the run
    if (e.status === 401 || e.status === 403) { refused(e); return; }
    message.dataset.key = 'broken';
    message.replaceChildren(el('div', { class: 'error' }, el('p', {}, el('strong', {}, e.status === 404 ? 'This run was not found. ' : 'The connection was lost. '), e.message, e.status === 404 ? ' ' : '', e.status === 404 ? el('a', { href: '#/' }, 'All runs') : '')));
  };
  on.connected = () => { if (message.dataset.key === 'broken') { message.dataset.key = ''; message.replaceChildren(); } };
  // A page that has been hidden for a while disconnects, so that the run records nothing for it.
  let seen = 0, stop = null, timer = null;
  on.marks = (all) => { const fresh = all.filter((m) => m.n > seen); if (fresh.length) { seen = fresh[fresh.length - 1].n; view.on.marks?.(fresh); } };
  const start = () => { stop ??= follow(`api/runs/${r.run}/events${view.pipeline ? '?pipeline=1' : ''}`, on); };
  const end = () => { stop?.(); stop = null; };
  const visible = () => {
    clearTimeout(timer);
    if (document.visibilityState === 'visible') { if (!over) start(); } else timer = setTimeout(end, 30000);
  };
  document.addEventListener('visibilitychange', visible);
  start();
  stopFollowing = () => { document.removeEventListener('visibilitychange', visible); clearTimeout(timer); end(); };
}

addEventListener('hashchange', show);
await app.whoami();
if (!token() && app.me === null) app.me = null;
show();
