// Draws the steps in a page: each is the text of an attribute.

import { el, freshColours } from './dom.js';
import { decode } from './step.js';
import { Pipeline, controls, legend } from './pipeline.js';

const pipes = [], dark = matchMedia('(prefers-color-scheme: dark)');

function theme() {
  document.documentElement.dataset.theme = dark.matches ? 'dark' : 'light';
  freshColours();
  for (const p of pipes) p.recolour();
}
theme();
dark.addEventListener('change', theme);

const places = [...document.querySelectorAll('[data-step]')];
const steps = places.map((p) => decode(Uint8Array.from(atob(p.dataset.step), (c) => c.charCodeAt(0)).buffer));
const sameUnit = (a, b) => a.head.unit === b.head.unit;
const ends = steps.map((s) => Math.max(...steps.filter((o) => sameUnit(o, s)).map((o) => o.end)));
places.forEach((place, i) => {
  const step = steps[i], pipe = new Pipeline();
  step.end = ends[i]; // steps in the same unit have one scale and move together
  pipe.follow = (view) => pipes.forEach((p) => { if (p !== pipe && sameUnit(p.step, step)) { p.view = view; p.draw(); } });
  pipes.push(pipe);
  place.append(el('div', { class: 'bar' }, controls(pipe)), pipe.element, legend(step));
  pipe.show(step);
});
