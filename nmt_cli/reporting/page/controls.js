// Controls

function stop(element, first) { // an element that arrows reach, within a group that Tab reaches once
  element.dataset.stop = "";
  element.tabIndex = first ? 0 : -1;
  return element;
}

function tabs() {
  at("kinds").replaceChildren(...data.kinds.map((kind, k) =>
    stop(make("button", { type: "button", role: "tab", onclick: () => choose({ kind: k }) }, kind.title, make("small", { textContent: kind.about })), k === state.kind)));
}

function buttons() {
  at("layers").replaceChildren(...now().layers.map((number, l) =>
    stop(make("button", { type: "button", role: "radio", textContent: number, onclick: () => choose({ layer: l }) }), l === state.layer)));
  at("heads").replaceChildren(...now().heads.map((number, h) => {
    const button = make("button", { type: "button", textContent: number, onclick: () => toggle(h), ondblclick: () => choose({ heads: [h] }) });
    button.setAttribute("aria-label", `head ${number}`);
    button.style.setProperty("--shade", colour(h));
    return stop(button, h === 0);
  }));
}

function pressed() {
  [...at("kinds").children].forEach((tab, k) => tab.setAttribute("aria-selected", k === state.kind));
  [...at("layers").children].forEach((button, l) => button.setAttribute("aria-checked", l === state.layer));
  [...at("heads").children].forEach((button, h) => button.setAttribute("aria-pressed", state.heads.has(h)));
}

function toggle(h) {
  const heads = new Set(state.heads);
  if (!heads.delete(h)) heads.add(h);
  if (heads.size) choose({ heads: [...heads] });
}

function choose({ kind = state.kind, layer = state.layer, heads = null, anew = false }) {
  const kindChanged = kind !== state.kind;
  if (kindChanged) Object.assign(state, { held: null, over: null });
  state.kind = kind;
  state.layer = Math.min(layer, now().layers.length - 1);
  const kept = (heads || [...state.heads]).filter((h) => h < now().heads.length);
  state.heads = new Set(kept.length ? kept : now().heads.keys());
  const all = state.heads.size === now().heads.length;
  history.replaceState(null, "", `#${now().name}/${now().layers[state.layer]}/${all ? "all" : shown().map((h) => now().heads[h]).join(",")}`);
  render(kindChanged || anew);
}

// All of it

function hints() {
  const heads = shown(), layer = `Layer ${now().layers[state.layer]}`;
  const which = heads.length === 1 ? `head ${now().heads[heads[0]]}` : `${heads.length} heads`;
  at("lines-hint").textContent = `${layer}, ${which}. Point at a word to see its lines and weights${heads.length > 1 ? " (means over the heads)" : ""}.`;
  at("map-hint").textContent = `${layer}, ${heads.length === 1 ? which : `mean of ${which}`}. Point at a cell.`;
}

function follow() { strokes(); tints(); heat(); speak(); }

function render(anew) {
  if (anew) { buttons(); words(); overview(); }
  pressed();
  hints();
  mark();
  follow();
}

function begin() {
  const [kind, layer, heads] = location.hash.slice(1).replace(/%2c/gi, ",").split("/");
  const k = Math.max(0, data.kinds.findIndex(({ name }) => name === kind));
  state.kind = k;
  const wanted = (heads || "").split(",").map((number) => now().heads.indexOf(Number(number))).filter((h) => h >= 0);
  state.layer = Math.max(0, layer ? now().layers.indexOf(Number(layer)) : now().layers.length - 2);
  document.querySelector("main").hidden = false;
  tabs();
  choose({ heads: wanted, anew: true });
}

const canvas = at("map");
canvas.onmousemove = describeCell;
canvas.onmouseleave = () => { tip(null); point(null); };
canvas.onclick = (event) => { const spot = cellAt(event); if (spot) hold(spot); };
at("all").onclick = () => choose({ heads: [...now().heads.keys()] });
roving(at("kinds"), () => 1);
roving(at("layers"), () => 1);
roving(at("heads"), () => 1);
roving(at("rows"), () => 1);
roving(at("columns"), () => 1);
roving(at("overview"), () => now().heads.length);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") { state.held = state.over = null; tip(null); follow(); } });
night.addEventListener("change", () => render(true));
addEventListener("hashchange", begin);
addEventListener("resize", strokes);
begin();
