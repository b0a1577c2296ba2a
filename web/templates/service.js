"use strict";
// Without this script, pages load again by themselves until what they wait for is there.
const live = document.querySelector("[data-events]");
if (live) {
  const list = live.querySelector("ol");
  const source = new EventSource(live.dataset.events);
  for (const kind of ["queries", "hits", "reranked", "sentences", "stance", "verdict"]) {
    source.addEventListener(kind, (event) => {
      const { said } = JSON.parse(event.data);
      if (!said) return;
      const item = document.createElement("li");
      item.textContent = said;
      list.append(item);
    });
  }
  const end = () => { source.close(); location.reload(); };
  source.addEventListener("done", end);
  // The server's own event has data; a lost connection has none, and the browser tries again.
  source.addEventListener("error", (event) => { if (event.data) end(); });
}

const refresh = async () => {
  const old = document.querySelector("[data-refresh]");
  if (!old) return;
  await new Promise((done) => setTimeout(done, Number(old.dataset.refresh)));
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById(old.id);
      if (!fresh) return;
      document.title = page.title;
      // What has the focus, and what a screen reader follows, stays in the page.
      const status = old.querySelector("[role=status]");
      const now = fresh.querySelector("[role=status]");
      if (status.textContent !== now.textContent) status.textContent = now.textContent;
      now.replaceWith(status);
      old.replaceChildren(...fresh.childNodes);
      if (fresh.dataset.refresh) old.dataset.refresh = fresh.dataset.refresh;
      else delete old.dataset.refresh;
    }
  } catch { /* The server is gone for a while: try again. */ }
  refresh();
};
refresh();

const print_ = document.querySelector("[data-print]");
if (print_) {
  print_.hidden = false;
  print_.addEventListener("click", () => print());
}

const drop = document.querySelector("[data-drop]");
if (drop) {
  const files = drop.querySelector("input");
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    files.files = event.dataTransfer.files;
  });
}
// What is folded away on the screen is wanted on paper, but for the whole texts.
addEventListener("beforeprint", () => {
  for (const way of document.querySelectorAll("details.way:not([open])")) way.open = way.dataset.printing = true;
});
addEventListener("afterprint", () => {
  for (const way of document.querySelectorAll("[data-printing]")) {
    way.open = false;
    delete way.dataset.printing;
  }
});
