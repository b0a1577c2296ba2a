"use strict";
// Without this script, pages load again by themselves until what they wait for is there.
const live = document.querySelector("[data-events]");
if (live) {
  const list = live.querySelector("ol");
  const source = new EventSource(live.dataset.events);
  const words = JSON.parse(live.dataset.words); // of each label its sign and its words
  const titles = {};
  let reads = false;
  const said = {
    hits: ({ documents }) => {
      for (const one of documents) titles[one.doc_id] = one.title || one.doc_id;
      return `Found ${documents.length || "no"} paper${documents.length > 1 ? "s" : ""}.`;
    },
    reranked: ({ documents }) => documents[0]?.title && `Put them in order. The best match: ${documents[0].title}`,
    sentences: () => {
      if (reads) return "";
      reads = true;
      return "Reading them for the sentences that bear on the claim.";
    },
    stance: ({ doc_id, label, leans }) => {
      const said = leans ? words.leaning[label] : words.stances[label]?.[1];
      return `${titles[doc_id] ?? doc_id}: ${said ?? "not judged"}`;
    },
    verdict: ({ label }) => `Verdict: ${words.verdicts[label ?? "NONE"][1]}`,
  };
  for (const [kind, tell] of Object.entries(said)) {
    source.addEventListener(kind, (event) => {
      const text = tell(JSON.parse(event.data));
      if (!text) return;
      const item = document.createElement("li");
      item.textContent = text;
      list.append(item);
    });
  }
  const end = () => { source.close(); location.reload(); };
  source.addEventListener("done", end);
  // The server's own event has data. A lost connection has none, and the browser tries again, unless the server that
  // came back refuses: it does not know this check, or this browser.
  source.addEventListener("error", (event) => {
    if (event.data) end();
    else if (source.readyState === EventSource.CLOSED) setTimeout(end, 1000);
  });
}

const refresh = async () => {
  const old = document.querySelector("[data-refresh]");
  if (!old) return;
  await new Promise((done) => setTimeout(done, Number(old.dataset.refresh)));
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    // Signed out, or the server was started again and does not know this work: a page of its own says so.
    if (answer.status >= 400 && answer.status < 429) return location.reload();
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

document.getElementById("claim")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
});

const drop = document.querySelector("[data-drop]");
if (drop) {
  const files = drop.querySelector("input");
  drop.querySelector("[hidden]").hidden = false;
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
