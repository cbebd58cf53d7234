// Words and lines between them

const ROW = () => (Math.max(now().rows.length, now().columns.length) > 36 ? 18 : 24);

function words() {
  for (const [side, list] of [["row", at("rows")], ["column", at("columns")]]) {
    list.style.setProperty("--row", `${ROW()}px`);
    list.style.setProperty("--size", ROW() < 24 ? "12.5px" : "14px");
    list.replaceChildren(...now()[`${side}s`].map((text, index) => {
      const item = stop(make("li", {}, make("output"), piece(text)), index === 0);
      const spot = { row: null, column: null, [side]: index };
      item.setAttribute("aria-label", text);
      item.onmouseenter = item.onfocus = () => point(spot);
      item.onmouseleave = item.onblur = () => point(null);
      item.onclick = () => hold(spot);
      return item;
    }));
  }
  at("rows-heading").textContent = now().headings[0];
  at("columns-heading").textContent = now().headings[1];
}

const same = (a, b) => a && b && a.row === b.row && a.column === b.column;
function point(spot) { state.over = spot; follow(); }
function hold(spot) { state.held = same(state.held, spot) ? null : spot; follow(); }

function strokes() {
  const { rows, columns } = now(), row = ROW(), width = at("strokes").parentElement.clientWidth < 360 ? 80 : 170;
  const pen = sized(at("strokes"), width, row * Math.max(rows.length, columns.length)), spot = target(), heads = shown();
  pen.lineWidth = 2;
  pen.lineCap = "round";
  heads.forEach((h, k) => {
    const map = now().maps[state.layer][h], aside = heads.length > 1 ? ((k + 0.5) / heads.length - 0.5) * row * 0.5 : 0;
    pen.strokeStyle = colour(h);
    for (let i = 0; i < rows.length; i++) {
      if (spot && spot.row !== null && spot.row !== i) continue;
      for (let j = 0; j < columns.length; j++) {
        if (spot && spot.column !== null && spot.column !== j) continue;
        const weight = map[i * columns.length + j];
        if (weight < LEAST) continue;
        pen.globalAlpha = weight;
        pen.beginPath();
        pen.moveTo(2, (i + 0.5) * row + aside);
        pen.lineTo(width - 2, (j + 0.5) * row + aside);
        pen.stroke();
      }
    }
  });
}

function tints() { // beside the word that is pointed at: each word's weight, and a strip of its heads' weights
  const spot = target(), heads = shown();
  for (const [side, list] of [["row", at("rows")], ["column", at("columns")]]) {
    [...list.children].forEach((item, index) => {
      const [number, word] = item.children, opposite = side === "row" ? "column" : "row";
      const on = spot && spot[side] === index, against = spot && spot[opposite] !== null && (spot[side] === null || on);
      const [i, j] = side === "row" ? [index, spot && spot.column] : [spot && spot.row, index];
      item.classList.toggle("on", Boolean(on));
      item.classList.toggle("dim", false);
      word.style.background = "";
      number.textContent = "";
      if (!against) return;
      const weight = mean(i, j);
      word.style.background = `linear-gradient(to right, ${heads.map((h, k) => {
        const share = Math.round(75 * Math.sqrt(mean(i, j, [h])));
        return `color-mix(in srgb, ${colour(h)} ${share}%, transparent) ${(100 * k) / heads.length}% ${(100 * (k + 1)) / heads.length}%`;
      }).join(", ")})`;
      number.textContent = weight >= 0.0005 ? weight.toFixed(3).replace(/^0/, "") : "";
      if (weight < LEAST) item.classList.add("dim");
    });
  }
}

function speak() {
  const spot = target();
  if (!spot || (spot.row === null) === (spot.column === null)) { at("spoken").textContent = ""; return; }
  const [from, to] = spot.row !== null ? [now().rows[spot.row], now().columns] : [now().columns[spot.column], now().rows];
  const pairs = to.map((text, index) => [spot.row !== null ? mean(spot.row, index) : mean(index, spot.column), text]);
  pairs.sort((a, b) => b[0] - a[0]);
  at("spoken").textContent = `${from}: ${pairs.slice(0, 4).map(([weight, text]) => `${text} ${weight.toFixed(2)}`).join(", ")}`;
}
