// The view "Control": what an operator may ask of a live run. Each asks first.

import { el, say } from './dom.js';
import { post, keepToken, token } from './net.js';

const actions = [
  { kind: 'pause', name: 'Pause', text: 'The run holds when the step under way has ended. Nothing is lost; memory stays taken.', ask: 'Pause the run at the end of its step?', when: (s) => s !== 'paused' },
  { kind: 'resume', name: 'Resume', text: 'A paused run goes on where it was.', ask: 'Let the run go on?', when: (s) => s === 'paused' },
  { kind: 'checkpoint', name: 'Checkpoint now', text: 'A checkpoint is written when the step has ended, beside those that are due anyway.', ask: 'Write a checkpoint at the end of this step?' },
  { kind: 'rate', name: 'Learning rate', text: 'Another peak and end of the learning rate, from a step on. It is journalled: a run that goes on from an older checkpoint does the same again.', ask: 'Change the learning rate?', fields: true },
  { kind: 'stop', name: 'Stop', text: 'The run ends with its step, or with the one that you name, and a checkpoint. Starting it again goes on from there.', ask: 'Stop the run?', step: true, danger: true },
];

export function controlView(app, id) {
  const message = el('div'), list = el('div', { class: 'actions' }), answers = el('ol', { class: 'log', 'aria-label': 'Answers', tabindex: '0' });
  const root = el('div', {}, message, el('section', { class: 'card' }, el('header', {}, el('h2', {}, 'Control')), list), el('section', { class: 'card' }, el('header', {}, el('h2', {}, 'Answers')), answers));
  let run = null, key = '', asked = 0;

  function paint() {
    if (!run) return;
    const over = ['ended', 'stopped', 'failed'].includes(run.state);
    const now = `${run.live}|${run.state === 'paused'}|${over}|${app.me?.control}`;
    if (now === key) return;
    key = now;
    message.replaceChildren();
    if (!run.live) message.append(el('div', { class: 'note' }, el('p', {}, 'This page reads the files of the run. Only the process that trains it can change it: start that with ', el('code', {}, 'engine run --ui'), ', or use ', el('code', {}, 'engine cluster'), ' for a run of a coordinator.')));
    else if (over) message.append(el('div', { class: 'note' }, el('p', {}, 'The run has ended: there is nothing to control. The same command goes on from its last checkpoint.')));
    else if (!app.me?.control) message.append(tokenForm());
    list.replaceChildren(...actions.map((a) => el('section', {}, el('h3', {}, a.name), el('p', {}, a.text),
      el('button', { type: 'button', class: a.danger ? '' : '', disabled: !run.live || over || !app.me?.control || (a.when && !a.when(run.state)), onclick: (e) => open(a, e.currentTarget) }, `${a.name}…`))));
  }

  function tokenForm() {
    const input = el('input', { type: 'password', autocomplete: 'off', id: 'token' });
    const form = el('form', { class: 'note', onsubmit: async (e) => {
      e.preventDefault();
      keepToken(input.value.trim());
      await app.whoami();
      if (!app.me?.control) { say('The token is not this server’s.'); out.textContent = 'The token is not this server’s.'; }
      key = '';
      paint();
    } });
    const out = el('span', { role: 'alert' });
    form.append(el('p', {}, token() ? 'The token of this tab is not this server’s, which makes a new one with each start. Open the printed link again, or paste its token (what stands behind #token=).' : 'Control takes the token. Open the link that the program has printed, or paste its token (what stands behind #token=).'),
      el('div', { class: 'bar' }, el('label', { for: 'token' }, 'Token'), input, el('button', { class: 'main' }, 'Use it'), out));
    return form;
  }

  function open(a, opener) {
    const error = el('p', { role: 'alert' }), fields = el('div', { class: 'fields' });
    const number = (name, text, value = '') => { const i = el('input', { type: 'text', inputmode: 'decimal', name, value, autocomplete: 'off' }); fields.append(el('label', {}, text, i)); return i; };
    let lr, min, step;
    if (a.fields) { lr = number('lr', 'Peak of the learning rate, such as 3e-4'); min = number('min_lr', 'Where the decay ends (empty: a tenth of it)'); }
    if (a.fields || a.step) step = number('step', 'When this step has ended (empty: as soon as possible)');
    const go = el('button', { type: 'button', class: 'main', onclick: send }, a.name), no = el('button', { type: 'button', onclick: () => d.close() }, 'Cancel');
    const title = `ask-${a.kind}`;
    const d = el('dialog', { 'aria-labelledby': title }, el('h2', { id: title }, a.ask), el('p', {}, a.text), fields, error, el('div', { class: 'ask' }, no, go));
    d.addEventListener('close', () => { d.remove(); if (opener.isConnected && !opener.disabled) opener.focus(); else document.getElementById('main').focus(); });
    d.addEventListener('keydown', (e) => { if (e.key === 'Enter' && e.target.tagName === 'INPUT') { e.preventDefault(); send(); } });
    document.body.append(d);
    d.showModal();
    (lr || no).focus();

    async function send() {
      const body = { kind: a.kind };
      if (lr) {
        body.lr = Number(lr.value);
        if (!(body.lr > 0)) { error.textContent = 'Give a learning rate above 0, such as 3e-4.'; lr.focus(); return; }
        body.min_lr = min.value.trim() === '' ? body.lr / 10 : Number(min.value);
        if (!(body.min_lr >= 0)) { error.textContent = 'Give 0 or more for the end of the decay.'; min.focus(); return; }
      }
      if (step && step.value.trim() !== '') {
        body.step = Number(step.value);
        if (!Number.isInteger(body.step) || body.step < 1) { error.textContent = 'Give a step as a whole number from 1.'; step.focus(); return; }
      }
      go.disabled = true;
      try {
        const r = await post(`api/runs/${id}/change`, body);
        asked = Date.now() - 1000;
        add(new Date(), 'asked', r.asked);
        d.close();
      } catch (e) { error.textContent = e.message; go.disabled = false; }
    }
  }

  function add(t, kind, words) {
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
