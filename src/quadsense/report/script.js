"use strict";
// The page says all of this without a script too: here tables are sorted, and pictures show the
// value under the pointer. Texts are set as text, so that none can become a tag.
(() => {
  const number = key => ({inf: Infinity, "-inf": -Infinity})[key] ?? (key === "" ? NaN : Number(key));

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const keys = (row, column) => row.cells[column].dataset.key;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rows = [...body.rows];
        const numeric = rows.some(row => !isNaN(number(keys(row, column))));
        const first = numeric && column ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        const sign = order === "ascending" ? 1 : -1;
        rows.sort((a, b) => {
          const x = keys(a, column), y = keys(b, column);
          if (!numeric) return sign * x.localeCompare(y);
          const u = number(x), v = number(y);
          if (isNaN(u) || isNaN(v)) return isNaN(u) - isNaN(v);
          return sign * (u < v ? -1 : u > v ? 1 : 0);
        });
        body.append(...rows);
        heads.forEach(each => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
      });
    });
  }

  const tip = document.createElement("div");
  tip.className = "tooltip";
  tip.hidden = true;
  document.body.append(tip);

  // Points as [x, y, text], in units of the drawing.
  function points(svg) {
    const found = [];
    for (const shape of svg.querySelectorAll("[data-values]")) {
      const places = shape.getAttribute("d")
        .match(/-?[\d.]+[ ,]-?[\d.]+/g).map(place => place.split(/[ ,]/).map(Number));
      const texts = shape.dataset.values.split(";");
      places.forEach(([x, y], k) => {
        const parts = (texts[k] ?? texts[0]).split("|");
        found.push([x, y, shape.dataset.say.replace(/\{(\d)\}/g, (_, part) => parts[part] ?? "")]);
      });
    }
    return found;
  }

  // The entry of a matrix under the pointer, from those on and below the diagonal.
  function entry(image, x, y) {
    const order = Number(image.dataset.order);
    const [left, top, width, height] = image.dataset.box.split(" ").map(Number);
    const row = Math.floor((y - top) / height * order);
    const column = Math.floor((x - left) / width * order);
    if (row < 0 || column < 0 || row >= order || column >= order) return null;
    image.codes ??= image.dataset.cells.split(" ").map(Number);
    const [high, low] = row < column ? [column, row] : [row, column];
    const code = image.codes[high * (high + 1) / 2 + low] * (row < column ? image.dataset.mirror : 1);
    const unit = Number(image.dataset.unit), value = code * unit;
    const shown = code ? value.toPrecision(Math.min(String(Math.abs(code)).length, 4)) : "0";
    return `${image.dataset.name}[${row}, ${column}] ${code ? "=" : "≈"} ${shown.replace("-", "−")}`;
  }

  function hovered(svg) {
    const image = svg.querySelector("[data-cells]"), known = points(svg);
    if (!image && !known.length) return;
    const reach = 30;
    svg.addEventListener("pointermove", event => {
      const place = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(svg.getScreenCTM().inverse());
      let text = image ? entry(image, place.x, place.y) : null, best = reach * reach;
      for (const [x, y, said] of known) {
        const far = (x - place.x) ** 2 + (y - place.y) ** 2;
        if (far < best) [best, text] = [far, said];
      }
      tip.hidden = text === null;
      if (text === null) return;
      tip.textContent = text;
      const width = tip.offsetWidth, room = document.documentElement.clientWidth;
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room - width - 4))}px`;
      const above = event.clientY - tip.offsetHeight - 12;
      tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("svg").forEach(hovered);
})();
