// The view "Control": what an operator may request of a live run. Each button asks for confirmation.

import { el, say, count, rate, table, over } from './dom.js';
import { get, post, keepToken, token } from './net.js';

const actions = [
  { kind: 'pause', name: 'Pause', button: 'Pause run', text: 'The run pauses after the current step. It keeps its memory, and no work is lost.', ask: 'Pause the run after the current step?', when: (s) => s !== 'paused' },
  { kind: 'resume', name: 'Resume', button: 'Resume run', text: 'A paused run continues with its next step.', ask: 'Resume the run?', when: (s) => s === 'paused' },
  { kind: 'checkpoint', name: 'Checkpoint', button: 'Write checkpoint', text: 'The run writes an extra checkpoint after the current step.', ask: 'Write a checkpoint after the current step?' },
  { kind: 'rate', name: 'Learning rate', button: 'Change learning rate', confirm: 'Change', text: 'The learning rate schedule gets a new peak and floor. During warm-up and decay, the rate of the next step is lower than the peak. The run records the change and repeats it after a restart.', ask: 'Change the learning rate?', fields: true },
  { kind: 'stop', name: 'Stop', button: 'Stop run', text: 'The run writes a checkpoint after the current step, or after the step that you name, and stops. Rerun its command to resume from there.', ask: 'Stop the run?', step: true },
];

export function controlView(app, id) {
  const message = el('div'), list = el('div', { class: 'actions' }), answers = el('ol', { class: 'log', 'aria-label': 'Requests and results', tabindex: '0' });
  const card = el('section', { class: 'card', hidden: true }, el('header', {}, el('h2', {}, 'Control')), list), results = el('section', { class: 'card', hidden: true }, el('header', {}, el('h2', {}, 'Requests and results')), answers);
  const root = el('div', {}, message, card, results);
  let run = null, key = '', asked = 0;

  function paint() {
    if (!run) return;
    const done = over(run), now = `${run.live}|${run.state}|${done}|${app.me?.control}`;
    if (now === key) return;
    key = now;
    message.replaceChildren();
    card.hidden = done || !run.live;
    if (done) message.append(el('div', { class: 'note' }, el('p', {}, 'The run has ended, so there is nothing to control.', run.state === 'ended' ? '' : ' Rerun the same command to resume from its last checkpoint.')));
    else if (!run.live) message.append(el('div', { class: 'note' }, el('p', {}, 'This page only reads the run’s files. To control a run from its page, start it with ', el('code', {}, 'engine run --ui'), '. In a terminal, ', el('code', {}, 'engine pause, resume, checkpoint, rate'), ' and ', el('code', {}, 'stop'), ' control it.')));
    else if (!app.me?.control) message.append(tokenForm());
    if (card.hidden) return;
    list.replaceChildren(...actions.map((a) => el('section', {}, el('h3', {}, a.name), el('p', {}, a.text),
      el('button', { type: 'button', disabled: !app.me?.control || (a.when && !a.when(run.state)), onclick: (e) => open(a, e.currentTarget) }, `${a.button}…`))));
  }

  function tokenForm() {
    const input = el('input', { type: 'password', autocomplete: 'off', id: 'token' });
    const form = el('form', { class: 'note', onsubmit: async (e) => {
      e.preventDefault();
      keepToken(input.value.trim());
      await app.whoami();
      if (!app.me?.control) { say('This server does not accept the token.'); out.textContent = 'This server does not accept the token.'; }
      key = '';
      paint();
    } });
    const out = el('span', { role: 'alert' });
    form.append(el('p', {}, token() ? 'This server does not accept the token of this tab. Open the link that it printed, or paste the part after #token=.' : 'Control needs an access token. Open the link that the server printed, or paste the part after #token=.'),
      el('div', { class: 'bar' }, el('label', { for: 'token' }, 'Access token'), input, el('button', { class: 'main' }, 'Use token'), out));
    return form;
  }

  function open(a, opener) {
    const error = el('p', { role: 'alert' }), fields = el('div', { class: 'fields' });
    const number = (name, text, value = '') => { const i = el('input', { type: 'text', inputmode: 'decimal', name, value, autocomplete: 'off' }); fields.append(el('label', {}, text, i)); return i; };
    let lr, min, step, due = null, tied = false;
    const preview = el('div', { class: 'preview', 'aria-live': 'polite' });
    if (a.fields) { lr = number('lr', 'Peak learning rate, such as 3e-4'); min = number('min_lr', 'Floor of the decay (empty: a tenth of the peak)'); }
    if (a.fields || a.step) step = number('step', 'After step (empty: the current step)');
    const go = el('button', { type: 'button', class: 'main', onclick: send }, a.confirm || a.button), no = el('button', { type: 'button', onclick: () => d.close() }, 'Cancel');
    const title = `ask-${a.kind}`;
    const d = el('dialog', { 'aria-labelledby': title }, el('h2', { id: title }, a.ask), el('p', {}, a.text), fields, preview, error, el('div', { class: 'ask' }, no, go));
    d.addEventListener('close', () => { d.remove(); if (opener.isConnected && !opener.disabled) opener.focus(); else document.getElementById('main').focus(); });
    d.addEventListener('keydown', (e) => { if (e.key === 'Enter' && e.target.tagName === 'INPUT') { e.preventDefault(); send(); } });
    document.body.append(d);
    d.showModal();
    (lr || no).focus();
    if (lr) {
      lr.addEventListener('input', () => { if (tied && Number(lr.value) > 0) min.value = String(tenth(Number(lr.value))); });
      min.addEventListener('input', () => { tied = false; });
      for (const i of [lr, min, step]) i.addEventListener('input', () => { clearTimeout(due); due = setTimeout(foresee, 250); });
      // The fields begin with what the run has now; typing replaces it.
      get(`api/runs/${id}/rate`).then((v) => { if (!lr.value && !min.value) { lr.value = String(v.peak); min.value = String(v.floor); tied = tenth(v.peak) === Number(v.floor.toPrecision(12)); lr.select(); foresee(); } }, () => {});
    }

    // tenth is a tenth of a rate, without the digits that a division in binary adds.
    function tenth(v) { return Number((v / 10).toPrecision(12)); }

    // foresee shows the rate of the next steps, now and after the change.
    async function foresee() {
      const peak = Number(lr.value), floor = min.value.trim() === '' ? tenth(peak) : Number(min.value), at = step.value.trim();
      if (!(peak > 0) || !(floor >= 0)) { preview.replaceChildren(); return; }
      try {
        const v = await get(`api/runs/${id}/rate?lr=${peak}&min_lr=${floor}${at ? `&step=${encodeURIComponent(at)}` : ''}`);
        preview.replaceChildren(table('Learning rate of the next steps', [['Step', 'n'], ['Rate now', 'n'], ['After the change', 'n']], v.steps.map((n, i) => el('tr', {}, el('td', { class: 'n' }, count(n)), el('td', { class: 'n' }, rate(v.now[i])), el('td', { class: 'n' }, el('strong', {}, rate(v.then[i])))))));
      } catch { preview.replaceChildren(); }
    }

    async function send() {
      const body = { kind: a.kind };
      if (lr) {
        body.lr = Number(lr.value);
        if (!(body.lr > 0)) { error.textContent = 'Enter a peak learning rate above 0, such as 3e-4.'; lr.focus(); return; }
        body.min_lr = min.value.trim() === '' ? tenth(body.lr) : Number(min.value);
        if (!(body.min_lr >= 0)) { error.textContent = 'Enter 0 or more for the floor.'; min.focus(); return; }
      }
      if (step && step.value.trim() !== '') {
        body.step = Number(step.value);
        if (!Number.isInteger(body.step) || body.step < 1) { error.textContent = 'Enter a step: a whole number of 1 or more.'; step.focus(); return; }
      }
      go.disabled = true;
      try {
        const r = await post(`api/runs/${id}/change`, body);
        asked = Date.now() - 1000;
        add(new Date(), 'request', r.asked);
        d.close();
      } catch (e) { error.textContent = e.message; go.disabled = false; }
    }
  }

  function add(t, kind, words) {
    results.hidden = false;
    answers.prepend(el('li', {}, el('span', {}, t.toLocaleTimeString([], { hour12: false })), el('span', {}, kind), el('span', {}), el('p', {}, words)));
    say(words);
  }

  return {
    element: root,
    on: {
      run(d) { run = d; paint(); },
      marks(all) { for (const m of all) if (['pause', 'continue', 'stop', 'rate', 'change', 'request', 'warning', 'end'].includes(m.kind) || (m.kind === 'checkpoint' && m.time_ms > asked && asked)) add(new Date(m.time_ms), m.kind, m.text); },
    },
    me() { key = ''; paint(); },
    end() {}, theme() {},
  };
}
