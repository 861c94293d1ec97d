"use strict";
// The picture works as it is. Zooming scales the groups of boxes along
// the time in one go; numbers and marks of time, which must not be stretched, are made
// again for what can be seen.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const view = document.getElementById("view");
  const svg = view.querySelector("svg");
  const status = document.getElementById("status");
  const controls = document.getElementById("controls");
  const naturalWidth = +svg.getAttribute("width");
  const height = +svg.getAttribute("height");
  const MOST_PIXELS = 4e6; // browsers lose precision beyond
  const MOST_NUMBERS = 6000; // that are shown at a time

  const make = (name, attributes, text) => {
    const e = document.createElementNS(NS, name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (text !== undefined) e.textContent = text;
    return e;
  };

  // What the boxes are.
  const byMicrobatch = new Map();
  const charts = [...svg.querySelectorAll("g.chart")].map((g) => {
    const chart = {
      zoom: g.querySelector(".zoom"), numbers: g.querySelector(".numbers"), axis: g.querySelector(".axis"),
      messages: g.querySelector(".messages"), names: g.querySelector(".names"),
      left: g.transform.baseVal.getItem(0).matrix.e,
      scale: +g.dataset.scale, makespan: +g.dataset.makespan,
      skips: (g.dataset.skips ?? "").split(" ").filter(Boolean).map((s) => s.split("-").map(Number)),
    };
    chart.ranks = [...g.querySelectorAll(".rank")].map((rank) => [...rank.querySelectorAll(".a")].map((e) => {
      const [, stage, type, microbatch] = /^(\d+)([FIWB])(\d+)$/.exec(e.dataset.a);
      const box = {
        e, chart, stage: +stage, type, microbatch: +microbatch,
        x: +e.getAttribute("x"), width: +e.getAttribute("width"),
        y: +e.getAttribute("y"), height: +e.getAttribute("height"),
      };
      e.box = box;
      if (!byMicrobatch.has(box.microbatch)) byMicrobatch.set(box.microbatch, []);
      byMicrobatch.get(box.microbatch).push(box);
      return box;
    }));
    return chart;
  });
  const microbatches = [...byMicrobatch.keys()].sort((a, b) => a - b);
  const left = Math.max(...charts.map((c) => c.left));
  const across = Math.max(1, ...charts.map((c) => c.makespan * c.scale));
  const right = 24;
  const widths = charts.flatMap((c) => c.ranks.flat().map((b) => b.width)).sort((a, b) => a - b);
  const usual = widths[widths.length >> 2] ?? 1;

  let zoom = 1;
  let shown = null; // the microbatch whose way is shown
  let pinned = false;
  let pending = false;

  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
  const fitting = () => Math.max(1e-6, (view.clientWidth - left - right) / across);
  const redraw = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  };

  function draw() {
    const width = Math.max(zoom === 1 ? naturalWidth : 0, left + across * zoom + right, view.clientWidth);
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    // Seen from afar the lines between the boxes would be all that is left.
    svg.style.setProperty("--gap", clamp((usual * zoom - 1) / 6, 0, 1));
    const scrolled = view.scrollLeft;
    for (const head of svg.querySelectorAll(".head, .legend")) {
      const y = head.dataset.y ?? (head.dataset.y = head.transform.baseVal.numberOfItems ? head.transform.baseVal.getItem(0).matrix.f : 0);
      head.setAttribute("transform", `translate(${scrolled},${y})`);
    }
    for (const chart of charts) {
      const from = (scrolled - left) / zoom, to = (scrolled + view.clientWidth - left) / zoom;
      chart.zoom.setAttribute("transform", `scale(${zoom},1)`);
      chart.names.setAttribute("transform", `translate(${scrolled},0)`);
      numbers(chart, from, to);
      axis(chart, from, to);
      messages(chart);
    }
  }

  // firstIn finds the first box that ends after a place.
  function firstIn(rank, from) {
    let low = 0, high = rank.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rank[middle].x + rank[middle].width < from) low = middle + 1; else high = middle;
    }
    return low;
  }

  function numbers(chart, from, to) {
    const made = [];
    for (const rank of chart.ranks) {
      for (let i = firstIn(rank, from); i < rank.length && rank[i].x <= to; i++) {
        const b = rank[i], text = String(b.microbatch), room = b.width * zoom;
        const font = b.height > 11 && room >= text.length * 7.04 + 5 ? 11 : 8.5;
        if (room < text.length * 0.64 * font + 5) continue;
        if (made.length === MOST_NUMBERS) break;
        made.push(make("text", {
          class: (font === 11 ? "n" : "n s") + (b.microbatch === shown ? " hi" : ""), x: (b.x + b.width / 2) * zoom, y: b.y + b.height / 2 + 0.36 * font,
        }, text));
      }
    }
    chart.numbers.replaceChildren(...made);
  }

  function axis(chart, from, to) {
    const y = +chart.axis.dataset.y, end = chart.makespan * chart.scale;
    const least = 70 / (chart.scale * zoom), power = 10 ** Math.floor(Math.log10(least));
    const every = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least * (1 - 1e-9));
    const made = [make("path", { class: "rule", d: `M0 ${y + 0.5}H${end * zoom}` })];
    const digits = Math.max(0, -Math.floor(Math.log10(every) + 1e-9));
    for (let k = Math.max(0, Math.floor(from / chart.scale / every)); ; k++) {
      const at = k * every * chart.scale;
      if (at > Math.min(end + 0.01, to)) break;
      made.push(make("path", { class: "rule", d: `M${at * zoom} ${y}v5` }));
      made.push(make("text", { class: "faint", x: at * zoom, y: y + 17, "font-size": 11, "text-anchor": "middle" }, (k * every).toFixed(digits)));
    }
    chart.axis.replaceChildren(...made);
  }

  // messages draws what a microbatch's actions send each other: activations to the
  // next stage, gradients to the one before, and both along the skips.
  function messages(chart) {
    const made = [];
    if (shown !== null) {
      const boxes = (byMicrobatch.get(shown) ?? []).filter((b) => b.chart === chart && b.type !== "W");
      const kind = (b) => (b.type === "F" ? "F" : "B");
      const at = new Map(boxes.map((b) => [kind(b) + b.stage, b]));
      const ways = boxes.map((b) => [b, at.get(kind(b) + (b.stage + (b.type === "F" ? 1 : -1)))]);
      for (const [from, to] of chart.skips) {
        ways.push([at.get("F" + from), at.get("F" + to)], [at.get("B" + to), at.get("B" + from)]);
      }
      for (const [b, to] of ways) {
        if (!b || !to) continue;
        const x1 = (b.x + b.width) * zoom, y1 = b.y + b.height / 2;
        const x2 = to.x * zoom, y2 = to.y + to.height / 2;
        made.push(make("path", { d: `M${x1} ${y1}L${x2} ${y2}` }));
        made.push(make("circle", { cx: x2, cy: y2, r: 2.6 }));
      }
    }
    chart.messages.replaceChildren(...made);
  }

  // show highlights a microbatch, or none.
  function show(microbatch) {
    if (microbatch === shown) return;
    for (const b of byMicrobatch.get(shown) ?? []) b.e.classList.remove("hi");
    shown = microbatch;
    for (const b of byMicrobatch.get(shown) ?? []) b.e.classList.add("hi");
    svg.classList.toggle("focus", shown !== null);
    draw();
  }

  function zoomTo(next, x) {
    const least = Math.min(fitting(), 1), most = Math.max(1, MOST_PIXELS / across);
    next = clamp(next, least, most);
    const at = (view.scrollLeft + x - left) / zoom; // stays where it is
    zoom = next;
    draw();
    view.scrollLeft = at * zoom + left - x;
    draw();
  }

  function act(name) {
    const middle = (view.clientWidth + left) / 2;
    switch (name) {
      case "in": return zoomTo(zoom * 1.5, middle);
      case "out": return zoomTo(zoom / 1.5, middle);
      case "fit": return zoomTo(fitting(), left);
      case "natural": return zoomTo(1, middle);
      case "next": case "previous": {
        if (!microbatches.length) return;
        const i = microbatches.indexOf(shown), n = microbatches.length;
        const to = name === "next" ? (i + 1) % n : (Math.max(i, 0) - 1 + n) % n;
        pinned = true;
        show(microbatches[to]);
        status.textContent = `microbatch ${microbatches[to]}`;
        return;
      }
      case "end":
        pinned = false;
        show(null);
        status.textContent = "";
        return;
      case "left": view.scrollLeft -= view.clientWidth / 6; return;
      case "right": view.scrollLeft += view.clientWidth / 6; return;
    }
  }

  const keys = {
    "+": "in", "=": "in", "-": "out", "0": "fit", "1": "natural", n: "next", p: "previous", Escape: "end",
    ArrowLeft: "left", ArrowRight: "right",
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !(e.key in keys)) return;
    e.preventDefault();
    act(keys[e.key]);
  });
  controls.addEventListener("click", (e) => {
    const button = e.target.closest("button");
    if (button) act(button.dataset.do);
  });
  view.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    zoomTo(zoom * Math.exp(-e.deltaY / 300), e.clientX - view.getBoundingClientRect().left);
  }, { passive: false });
  view.addEventListener("scroll", redraw, { passive: true });
  addEventListener("resize", redraw);

  // A press that moves is a drag, one that doesn't keeps the microbatch shown.
  let drag = null;
  view.addEventListener("pointerdown", (e) => {
    if (e.pointerType === "mouse" && e.button === 0) drag = { x: e.clientX, scrolled: view.scrollLeft, moved: false };
  });
  addEventListener("pointermove", (e) => {
    if (!drag) return;
    const moved = e.clientX - drag.x;
    drag.moved ||= Math.abs(moved) > 3;
    if (!drag.moved) return;
    view.classList.add("drag");
    view.scrollLeft = drag.scrolled - moved;
  });
  addEventListener("pointerup", (e) => {
    const click = drag && !drag.moved;
    drag = null;
    view.classList.remove("drag");
    if (!click || !view.contains(e.target)) return;
    const box = e.target.box;
    pinned = Boolean(box) && !(pinned && box.microbatch === shown);
    show(box ? box.microbatch : null);
    if (!box) status.textContent = "";
  });
  view.addEventListener("pointerover", (e) => {
    const box = e.target.box;
    if (box) status.textContent = e.target.querySelector("title").textContent;
    if (pinned || drag) return;
    if (!box) status.textContent = "";
    show(box ? box.microbatch : null);
  });
  view.addEventListener("pointerleave", () => { if (!pinned) act("end"); });

  controls.hidden = false;
  view.classList.add("live");
  zoom = Math.max(1, fitting());
  draw();
})();
