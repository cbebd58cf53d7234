"use strict";
// data: {digits, kinds: [{name, title, about, headings, causal, rows, columns, layers, heads, weights}]}; weights[layer][head]
// holds whole numbers, row by row, in units of 10^-digits; of a causal kind row i has i + 1 of them.
const data = JSON.parse(document.getElementById("data").textContent);
const LEAST = 0.01;
const LIGHT = ["#1f77b4", "#dd6b10", "#2b9a41", "#d0303b", "#8457c2", "#0e93a1", "#9c632c", "#d1449a", "#768700", "#5b6b88"];
const DARK = ["#5aa9ea", "#ff9d52", "#5ccc73", "#ff7378", "#b795f2", "#43cbd6", "#d39f69", "#f584c3", "#b9c93a", "#9aabcc"];
const night = matchMedia("(prefers-color-scheme: dark)");
const at = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

for (const kind of data.kinds) {
  const width = kind.columns.length;
  kind.maps = kind.weights.map((layer) => layer.map((numbers) => {
    const map = new Float32Array(kind.rows.length * width);
    let next = 0;
    for (let i = 0; i < kind.rows.length; i++)
      for (let j = 0; j < (kind.causal ? i + 1 : width); j++) map[i * width + j] = numbers[next++] / 10 ** data.digits;
    return map;
  }));
  delete kind.weights;
}

// What is shown: indices in `kinds`, in the kind's layers, and in its heads. `held` and `over` are {row, column}, either may be null.
const state = { kind: 0, layer: 0, heads: new Set(), over: null, held: null };
const now = () => data.kinds[state.kind];
const shown = () => [...state.heads].sort((a, b) => a - b);
const target = () => state.over || state.held;
const mean = (i, j, heads = shown(), layer = state.layer) =>
  heads.reduce((sum, h) => sum + now().maps[layer][h][i * now().columns.length + j], 0) / Math.max(heads.length, 1);

function colour(h) {
  const number = now().heads[h] - 1, palette = night.matches ? DARK : LIGHT;
  return number < palette.length ? palette[number] : `hsl(${(number * 137.5) % 360} 60% ${night.matches ? 68 : 42}%)`;
}
const ink = () => (state.heads.size === 1 ? colour(shown()[0]) : style("--ink"));

// Elements

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function piece(text) { // what begins a word, ▁ (as _: fonts make it heavy), and special symbols stand back
  const word = make("bdi");
  if (/^<.*>$/.test(text)) word.className = "special";
  if (text.startsWith("▁")) word.append(make("i", { textContent: "_" }), text.slice(1));
  else word.append(text);
  return word;
}

function sized(canvas, width, height) { // a canvas in CSS pixels, sharp on any screen
  const dots = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function roving(box, across) { // one stop of the Tab key; arrows move within
  const items = () => [...box.querySelectorAll("[data-stop]")];
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across(), ArrowDown: across(), Home: -1e9, End: 1e9 };
    const all = items(), index = all.indexOf(event.target);
    if (!(event.key in steps) || index < 0) return;
    event.preventDefault();
    const step = steps[event.key], next = Math.abs(step) === 1e9 ? (step < 0 ? 0 : all.length - 1) : index + step;
    if (all[next]) all[next].focus();
  });
  box.addEventListener("focusin", (event) => items().forEach((item) => { item.tabIndex = item === event.target ? 0 : -1; }));
}
