"use strict";
// Without this script the page shows everything: the filter stays hidden.
const filter = document.getElementById("filter");
if (filter) {
  const items = [...document.querySelectorAll("[data-outcome]")];
  const claims = items.filter((item) => item.matches("section"));
  const show = () => {
    const wanted = filter.querySelector(":checked").value;
    for (const item of items) item.hidden = wanted !== "" && ![item.dataset.outcome, item.dataset.reason].includes(wanted);
    const shown = claims.filter((claim) => !claim.hidden).length;
    document.getElementById("showing").textContent = `${shown} of ${claims.length} claims shown`;
  };
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || !target.closest("[hidden]")) return;
    filter.querySelector("input").checked = true;
    show();
    target.scrollIntoView();
  };
  filter.hidden = false;
  document.getElementById("counts").hidden = true;
  filter.addEventListener("change", show);
  addEventListener("hashchange", follow);
  show();
}
// What is folded away on the screen is wanted on paper, but for the whole texts.
const ways = () => document.querySelectorAll("details.way:not([open])");
addEventListener("beforeprint", () => {
  for (const way of ways()) way.open = way.dataset.printing = true;
});
addEventListener("afterprint", () => {
  for (const way of document.querySelectorAll("[data-printing]")) {
    way.open = false;
    delete way.dataset.printing;
  }
});
