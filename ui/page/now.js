// The view "Overview": the loss and the configuration, the pipeline of the current step or of a recorded one, and why
// ranks waited.

import { el, text, ms, table, figure, plural, clock, calm, say, styled, swatch, over } from './dom.js';
import { get, getBytes } from './net.js';
import { decode, Growing } from './step.js';
import { Pipeline, causes, controls, legend } from './pipeline.js';
import { lossCard, setupCard } from './summary.js';

const slow = 700; // ms: a step that takes longer is drawn while it runs

export function nowView(app, id) {
  const pipe = new Pipeline();
  const message = el('div'), stall = el('div');
  const picker = el('select', { 'aria-label': 'Step to draw' }, el('option', { value: 'live' }, 'Newest step'));
  const colours = el('div');
  const card = el('section', { 'aria-label': 'Pipeline', hidden: true }, el('div', { class: 'bar' }, picker, controls(pipe)), pipe.element, colours);
  const why = el('section', { class: 'card inner', hidden: true }), doing = el('section', { class: 'card', hidden: true }), waits = el('section', { class: 'card inner', hidden: true });
  const log = el('section', { class: 'card' }, el('header', {}, el('h2', {}, 'Events')), el('p', { class: 'none' }, 'No events yet.'), el('ol', { class: 'log', tabindex: '0', 'aria-label': 'Events, newest first', hidden: true }));
  const loss = lossCard(id), setup = setupCard(id);
  const fold = el('details', { class: 'card fold pipeline', ontoggle: () => pipe.draw() }, el('summary', {}, el('h2', {}, 'Pipeline')), message, card, el('div', { class: 'columns' }, why, waits));
  const root = el('div', {}, stall, el('div', { class: 'charts first' }, loss.element, setup.element), fold, el('div', { class: 'columns' }, doing, log));
  let folded = null; // whether the pipeline was folded at first; null: not yet decided

  let pinned = null, busy = false, wanted = null, shown = -1, status = null, ended = false, run = null, steps = [], noTrace = false, told = -1e9, later = null, drew = 0;
  const growing = new Growing();

  // load fetches a step and draws it. If it is called meanwhile, it loads the last requested step next.
  async function load(step) {
    wanted = step;
    if (busy) return;
    busy = true;
    while (wanted !== null && !ended) {
      const n = wanted;
      wanted = null;
      try {
        const s = decode(await getBytes(`api/runs/${id}/step?n=${n}`));
        if (ended) break;
        shown = s.head.step;
        noTrace = false;
        card.hidden = false;
        message.replaceChildren();
        pipe.show(s);
        const due = performance.now() - told > 1000 || s.head.step === pinned;
        if (due) { told = performance.now(); explain(s); } else { clearTimeout(later); later = setTimeout(() => { if (!ended && pipe.step === s) explain(s); }, 1000); }
        if (s.head.note) message.replaceChildren(el('p', { class: 'note' }, s.head.note));
      } catch (e) {
        if (e.status === 404) missing();
        else message.replaceChildren(el('div', { class: 'error' }, el('p', {}, el('strong', {}, 'The step could not be drawn. '), e.message)));
      }
      await new Promise((f) => setTimeout(f, calm() ? 1000 : 250));
    }
    busy = false;
  }

  function missing() {
    noTrace = true;
    if (shown >= 0) return;
    const live = run?.live && !over(run);
    message.replaceChildren(el('div', { class: 'empty' },
      el('h2', {}, live ? 'Waiting for the first step' : 'This run has no recorded steps'),
      live ? el('p', {}, 'The run records the actions of each step while this page is open. The drawing appears after the first step.')
        : el('p', {}, 'To record every hundredth step, train with ', el('code', {}, '--set run.trace_every=100'), '. To watch each step, train with ', el('code', {}, 'engine run --ui'), '.')));
  }

  function explain(s) {
    const h = s.head, all = h.step_ms * h.counts.length || 1;
    const totals = h.causes.map((_, k) => h.sums_ms.reduce((a, r) => a + r[k], 0));
    const idle = totals.reduce((a, b) => a + b, 0);
    const rows = h.causes.map((name, k) => [name, k, totals[k]]).filter(([, , v]) => v > 0).sort((a, b) => b[2] - a[2]).map(([name, k, v]) =>
      el('tr', {}, el('th', { scope: 'row' }, swatch(`c-${causes[k]}`), name), el('td', { class: 'n' }, ms(v)), el('td', { class: 'n' }, `${(100 * v / all).toFixed(1)} %`), el('td', { class: 'grow optional' }, meter([[v / Math.max(...totals), `c-${causes[k]}`]]))));
    why.hidden = waits.hidden = false;
    if (why.contains(document.activeElement) || waits.contains(document.activeElement)) return; // it has the keyboard focus
    why.replaceChildren(el('header', {}, el('h2', {}, 'Where the bubble comes from')),
      el('p', {}, `Ranks were idle for ${ms(idle)} of ${ms(all)}, which is ${(100 * idle / all).toFixed(1)} % of their time. If all actions took equally long, the schedule's bubble would be ${h.ideal_bubble_pct.toFixed(1)} %. The critical path has ${plural(h.critical, 'action')}, which compute for ${ms(h.critical_ms)} of ${ms(h.makespan_ms)}. The rest is messages (${ms(h.critical_message_ms)})${h.critical_credit_ms > 0 ? `, credits (${ms(h.critical_credit_ms)})` : ''} and gaps between actions of one stage (${ms(h.critical_rank_ms)}).${h.exchange_ms > 0 ? ` Tokens traveled to their experts and back for ${ms(h.exchange_ms)}, of which ${ms(h.hidden_ms)} (${(100 * h.hidden_ms / h.exchange_ms).toFixed(1)} %) while their rank computed.` : ''}`),
      table('Bubble by cause', [['Cause'], ['Time of all ranks', 'n'], ['Share', 'n'], ['Relative to largest', 'optional']], rows));
    const lanes = h.counts.map((_, r) => {
      const b = h.busy_ms[r] / (h.step_ms || 1);
      return el('tr', {}, el('th', { scope: 'row' }, `stage ${r}`), h.hosts ? el('td', { class: 'host' }, h.hosts[r] || 'this process') : null, el('td', { class: 'n' }, `${(100 * b).toFixed(0)} %`),
        el('td', { class: 'grow' }, meter([[b, 'accent'], ...h.sums_ms[r].map((v, k) => [v / (h.step_ms || 1), `c-${causes[k]}`])])),
        el('td', {}, worst(h, r)));
    });
    waits.replaceChildren(el('header', {}, el('h2', {}, 'Who waits for whom')),
      el('ul', { class: 'legend' }, h.waits.slice(0, 5).map(([a, b, v]) => el('li', {}, `stage ${a} waited for stage ${b}: ${ms(v)}`))),
      table('Work and waiting by stage', [['Stage'], ...(h.hosts ? [['Host']] : []), ['Busy', 'n'], ['Share of the step'], ['Main idle cause']], lanes, { tall: lanes.length > 12 }));
    if (h.clocks?.some((c) => c.host)) {
      const seen = new Set();
      waits.append(el('p', { class: 'readout' }, h.clocks.filter((c) => c.host && !seen.has(c.host) && seen.add(c.host)).map((c) =>
        c.uncertainty_ms ? `The clock of ${c.host} is ${figure(Math.abs(c.offset_ms), 2)} ± ${figure(c.uncertainty_ms, 2)} ms ${c.offset_ms < 0 ? 'behind' : 'ahead'}; its times are corrected.` : `The clock offset of ${c.host} is not known yet.`).join(' ')));
    }
    colours.replaceChildren(legend(s));
  }

  function worst(h, r) {
    let k = 0;
    h.sums_ms[r].forEach((v, i) => { if (v > h.sums_ms[r][k]) k = i; });
    return h.sums_ms[r][k] > 0 ? `${h.causes[k]}, ${ms(h.sums_ms[r][k])}` : '';
  }

  // paintStatus shows what each actor does, and a stall in words and on the drawing.
  function paintStatus() {
    if (!status) return;
    const rootLink = status.links.find((l) => l.root);
    const stalled = run?.state === 'stalled';
    pipe.status = status; pipe.statusAt = performance.now();
    pipe.stall = stalled; pipe.root = rootLink && rootLink.rank >= 0 ? rootLink.rank : -1;
    pipe.draw();
    if (stalled) {
      const lines = status.chain;
      const key = lines.join('\n').replace(/[\d.]+ s/g, '');
      if (stall.dataset.key !== key) {
        stall.dataset.key = key;
        say(`The run is stalled. ${lines[lines.length - 1] || ''}`);
        stall.replaceChildren(el('section', { class: 'stall' }, el('h2', {}, 'The run is stalled'), el('p', {}, 'Each actor waits for the next. The last line is the root cause:'), el('ol', {}, lines.map((l) => el('li', {}, l)))));
      } else [...stall.querySelectorAll('li')].forEach((li, i) => text(li, lines[i] || ''));
    } else if (stall.firstChild) { stall.replaceChildren(); stall.dataset.key = ''; }
    doing.hidden = false;
    const hosts = status.actors.some((a) => a.host);
    const rows = status.actors.map((a) => el('tr', { class: rootLink && a.name === rootLink.actor && stalled ? 'root' : '' }, el('th', { scope: 'row' }, a.name), hosts ? el('td', { class: 'host' }, a.host || 'this process') : null, el('td', { class: 'words' }, a.text.startsWith(a.name) ? a.text.slice(a.name.length + 1) : a.text), el('td', { class: 'n' }, `${a.since_s.toFixed(1)} s`)));
    const body = doing.querySelector('tbody');
    if (body) body.replaceChildren(...rows);
    else doing.replaceChildren(el('header', {}, el('h2', {}, 'Actors')), table('What each actor is doing', [['Actor'], ...(hosts ? [['Host']] : []), ['Doing'], ['For', 'n']], rows, { tall: true }));
  }

  function addMarks(marks) {
    const list = log.querySelector('ol');
    list.hidden = false;
    log.querySelector('.none').hidden = true;
    for (const m of marks) {
      const words = el('p', { 'data-sample': m.kind === 'sample' && !m.text ? String(m.step) : null }, m.text || (m.kind === 'sample' ? 'a sample text: see Model' : ''));
      list.prepend(el('li', {}, el('span', {}, clock(m.time_ms)), el('span', {}, m.kind), el('span', {}, `step ${m.step}`), words));
      while (list.children.length > 300) list.lastChild.remove();
    }
    if (marks.some((m) => m.kind === 'sample' && !m.text)) quote(list);
  }

  // quote puts the beginnings of samples into their rows: the events of older runs have no texts.
  async function quote(list) {
    try {
      const { samples } = await get(`api/runs/${id}/samples`);
      for (const p of list.querySelectorAll('[data-sample]')) {
        const s = samples.findLast((x) => x.step === Number(p.dataset.sample));
        if (!s) continue;
        const words = s.text.trim().replace(/\s+/g, ' ');
        text(p, words ? `“${words.slice(0, 100)}${words.length > 100 ? '…' : ''}”` : s.text ? 'only white space' : 'an empty text');
      }
    } catch { /* the rows keep their words */ }
  }

  function paintSteps() {
    const was = picker.value;
    const newest = el('option', { value: 'live' }, 'Newest step');
    picker.replaceChildren(newest, ...steps.slice(-500).reverse().map((n) => el('option', { value: String(n) }, `step ${n}`)));
    picker.value = [...picker.options].some((o) => o.value === was) ? was : 'live';
  }

  picker.addEventListener('change', () => {
    pinned = picker.value === 'live' ? null : Number(picker.value);
    pipe.growing = null;
    pipe.held = false;
    load(pinned ?? 'last');
  });

  get(`api/runs/${id}/steps`).then((v) => { steps = v.steps; paintSteps(); }, () => {});

  let timer = setInterval(() => {
    if (pipe.growing && document.visibilityState === 'visible') pipe.draw();
  }, matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 80);

  return {
    element: root, pipeline: true,
    on: {
      run(d) {
        run = d;
        loss.run(d); setup.run(d);
        if (folded === null) { folded = d.stages <= 1 || !(d.traced || (d.live && !over(d))); fold.open = !folded; }
        if (!d.traced && shown < 0) missing();
        if (over(d)) { pipe.growing = null; pipe.stall = false; status = null; doing.hidden = true; stall.replaceChildren(); pipe.draw(); if (noTrace) missing(); }
        else paintStatus();
      },
      marks: addMarks,
      status(s) { status = s; paintStatus(); },
      traced(t) {
        if (pinned === null) load('last');
        if (run && !run.live && !steps.includes(t.step)) { steps.push(t.step); paintSteps(); }
      },
      now(v) {
        growing.take(v, pipe.step?.lanes.length || 0);
        const long = (pipe.step?.head.makespan_ms ?? 0) > slow || growing.now() > slow;
        const use = pinned === null && !pipe.held && long && v.phase === 'training';
        if (use && !pipe.growing) { pipe.view = null; pipe.selected = null; }
        if (calm() && performance.now() - drew < 1000) return;
        drew = performance.now();
        pipe.growing = use ? growing : null;
        if (use) { card.hidden = false; if (!pipe.step) message.replaceChildren(); }
        pipe.draw();
      },
    },
    end() { ended = true; clearInterval(timer); clearTimeout(later); loss.end(); },
    theme() { pipe.recolour(); loss.draw(); },
  };
}

export function meter(parts) {
  return el('div', { class: 'meter', 'aria-hidden': 'true' }, parts.filter(([v]) => v > 0).map(([v, name]) => styled(el('i'), { width: `${(100 * Math.min(1, v)).toFixed(2)}%`, background: `var(--${name})` })));
}
