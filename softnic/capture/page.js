"use strict";
// Marks the bits of the float that was chosen: its own, and those that it needs together with others.
for (const path of document.querySelectorAll(".path")) {
  const rows = path.querySelectorAll("tr[data-word]");
  const choose = (row) => {
    const mask = 1 << Number(row.dataset.word);
    for (const one of rows) {
      one.classList.toggle("chosen", one === row);
      one.querySelector("button").setAttribute("aria-pressed", one === row);
    }
    for (const bit of path.querySelectorAll("[data-mask]")) {
      const mine = (Number(bit.dataset.mask) & mask) !== 0;
      bit.classList.toggle("own", mine && "alone" in bit.dataset);
      bit.classList.toggle("shared", mine && !("alone" in bit.dataset));
    }
  };
  for (const row of rows) row.addEventListener("click", () => choose(row));
  if (rows.length) choose(rows[0]);
}
const flow = document.getElementById("flow"), kind = document.getElementById("kind");
const filter = () => {
  let shown = 0;
  for (const row of document.querySelectorAll("tr[data-flow]")) {
    row.hidden = (flow.value && row.dataset.flow !== flow.value) || (kind.value && !row.dataset.kind.includes(kind.value));
    shown += !row.hidden;
  }
  document.getElementById("shown").textContent = `${shown} packets`;
};
if (flow) for (const control of [flow, kind]) control.addEventListener("change", filter);
