// The heat map

let layout = { cell: 0, left: 0, top: 0, rows: [], columns: [] }; // of the map: pixels, and labels (the font's ▁ is heavy)

function heat() {
  const { rows, columns } = now(), canvas = at("map"), cell = Math.max(9, Math.min(26, Math.floor(580 / Math.max(rows.length, columns.length))));
  const pen = canvas.getContext("2d"), size = Math.min(13, Math.max(9, cell - 1)), font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  pen.font = font;
  const plain = (texts) => texts.map((text) => text.replace(/^▁/, "_"));
  const longest = (texts) => Math.min(150, Math.ceil(Math.max(...texts.map((text) => pen.measureText(text).width)))) + 10;
  layout = { cell, left: longest(plain(rows)), top: longest(plain(columns)), rows: plain(rows), columns: plain(columns) };
  draw(sized(canvas, layout.left + cell * columns.length + 2, layout.top + cell * rows.length + 2), font);
  const heads = shown();
  canvas.setAttribute("aria-label", `Weights of layer ${now().layers[state.layer]}, ${heads.length === 1 ? `head ${now().heads[heads[0]]}` : `mean of ${heads.length} heads`}. The lists of words tell them.`);
  const pale = sized(at("scale"), 160, 10);
  for (let x = 0; x < 160; x++) shade(pale, x / 159, x, 0, 1, 10);
}

function shade(pen, weight, x, y, width, height) {
  pen.globalAlpha = Math.sqrt(weight);
  pen.fillStyle = ink();
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 1;
}

function draw(pen, font) {
  const { rows, columns } = now(), { cell, left, top } = layout, spot = target() || {};
  pen.textBaseline = "middle";
  const label = (text, x, y, turn, on) => {
    pen.save();
    pen.translate(x, y);
    pen.rotate(turn);
    pen.font = (on ? "bold " : "") + font;
    pen.fillStyle = style(on ? "--ink" : "--soft");
    pen.textAlign = turn ? "left" : "right";
    pen.fillText(text, 0, 0, 150);
    pen.restore();
  };
  layout.rows.forEach((text, i) => label(text, left - 6, top + (i + 0.5) * cell, 0, spot.row === i));
  layout.columns.forEach((text, j) => label(text, left + (j + 0.5) * cell, top - 6, -Math.PI / 2, spot.column === j));
  pen.strokeStyle = style("--edge");
  pen.lineWidth = 1;
  for (let i = 0; i < rows.length; i++)
    for (let j = 0; j < columns.length; j++) {
      const weight = mean(i, j), x = left + j * cell, y = top + i * cell;
      shade(pen, weight, x + 0.5, y + 0.5, cell - 1, cell - 1);
      if (cell >= 24 && weight >= 0.095) {
        pen.fillStyle = Math.sqrt(weight) > 0.55 ? style("--panel") : style("--ink");
        pen.font = "11px system-ui, sans-serif";
        pen.textAlign = "center";
        pen.fillText(weight >= 0.995 ? "1" : `.${Math.floor(weight * 100 + 0.5)}`, x + cell / 2, y + cell / 2 + 0.5);
      }
    }
  pen.strokeRect(left - 0.5, top - 0.5, cell * columns.length + 1, cell * rows.length + 1);
  pen.strokeStyle = style("--mark");
  pen.lineWidth = 1.5;
  if (spot.row != null || spot.column != null) {
    const [i, high] = spot.row != null ? [spot.row, 1] : [0, rows.length], [j, wide] = spot.column != null ? [spot.column, 1] : [0, columns.length];
    pen.strokeRect(left + j * cell, top + i * cell, wide * cell, high * cell);
  }
}

function cellAt(event) {
  const box = at("map").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - layout.left) / layout.cell), row = Math.floor((event.clientY - box.top - layout.top) / layout.cell);
  const spot = { row: row >= 0 && row < now().rows.length ? row : null, column: column >= 0 && column < now().columns.length ? column : null };
  return spot.row === null && spot.column === null ? null : spot;
}

function tip(event, ...content) {
  const box = at("tip");
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren(...content);
  const right = event.clientX + 16 + box.offsetWidth < innerWidth;
  box.style.left = `${Math.max(4, right ? event.clientX + 16 : event.clientX - 12 - box.offsetWidth)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 6)}px`;
}

function describeCell(event) {
  const spot = cellAt(event);
  if (!same(spot, state.over) && (spot || state.over)) point(spot);
  if (!spot || spot.row === null || spot.column === null) { tip(null); return; }
  const heads = shown(), several = heads.length > 1;
  const each = several ? heads.map((h) => {
    const line = make("span", { className: "each", textContent: `head ${now().heads[h]}  ${mean(spot.row, spot.column, [h]).toFixed(data.digits)}` });
    line.style.setProperty("--shade", colour(h));
    return line;
  }) : [];
  const weight = make("b", { textContent: mean(spot.row, spot.column).toFixed(data.digits) });
  const hidden = now().causal && spot.column > spot.row ? "  (not written yet)" : "";
  tip(event, make("bdi", { textContent: now().rows[spot.row] }), " → ", make("bdi", { textContent: now().columns[spot.column] }), "   ", weight, several ? " mean" : hidden, ...each);
}

// The overview

function overview() {
  const { rows, columns, heads, layers } = now(), box = at("overview"), side = heads.length > 8 ? 34 : 42;
  const longer = Math.max(rows.length, columns.length);
  const width = (side * Math.max(columns.length, longer / 2)) / longer, height = (side * Math.max(rows.length, longer / 2)) / longer;
  const wide = width / columns.length, high = height / rows.length;
  box.style.gridTemplateColumns = `auto repeat(${heads.length}, auto)`;
  const cells = [make("span"), ...heads.map((number) => make("span", { textContent: number }))];
  layers.forEach((number, l) => {
    cells.push(make("span", { textContent: number }));
    heads.forEach((of, h) => {
      const canvas = make("canvas"), pen = sized(canvas, width, height);
      pen.fillStyle = colour(h);
      now().maps[l][h].forEach((weight, index) => {
        pen.globalAlpha = Math.sqrt(weight);
        pen.fillRect((index % columns.length) * wide, Math.floor(index / columns.length) * high, wide, high);
      });
      const button = make("button", { type: "button", onclick: () => choose({ layer: l, heads: [h] }), onmouseleave: () => tip(null) }, canvas);
      button.onmousemove = (event) => tip(event, `layer ${number}, head ${of}`);
      button.setAttribute("aria-label", `layer ${number}, head ${of}`);
      button.style.setProperty("--shade", colour(h));
      cells.push(stop(button, l + h === 0));
    });
  });
  box.replaceChildren(...cells);
}

function mark() { // which maps are shown at large
  [...at("overview").querySelectorAll("button")].forEach((button, index) => {
    const count = now().heads.length;
    button.classList.toggle("on", Math.floor(index / count) === state.layer && state.heads.has(index % count));
  });
}
