"use strict";
// Sort rows within their own group, so that oracles and variants never mix with ranked methods.
const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

// The last row of headings; a row for groups of columns may precede it.
function headingsOf(table) {
  return table.tHead.rows[table.tHead.rows.length - 1].cells;
}

function keyOf(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  return value === undefined ? null : column === 0 ? value : Number(value);
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

function sortTable(table, heading) {
  const order = NEXT[heading.getAttribute("aria-sort")];
  const column = heading.cellIndex;
  for (const other of headingsOf(table)) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", order);
  for (const body of table.querySelectorAll("tbody.rows")) {
    const rows = [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place);
    if (order !== "none") {
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((a, b) => {
        const x = keyOf(a, column), y = keyOf(b, column);
        // Rows without a number are last in both orders.
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * compare(x, y);
      });
    }
    body.append(...rows);
  }
}

for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("tbody.rows").forEach(body => [...body.rows].forEach((row, i) => { row.dataset.place = i; }));
  for (const heading of headingsOf(table)) {
    if (heading.classList.contains("words")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sortTable(table, heading));
  }
}

// A printed page shows folded tables, too.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
