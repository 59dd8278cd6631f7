"use strict";
(function () {
  const all = (query) => Array.from(document.querySelectorAll(query));
  const details = all(".detail");

  // A partition's box, its row, its points and its bars are marked together; its details are shown.
  function choose(id, byHand) {
    const detail = document.getElementById("part-" + id);
    if (!detail) {
      return;
    }
    details.forEach((d) => { d.hidden = d !== detail; });
    all("[data-part]").forEach((e) => e.classList.toggle("chosen", e.dataset.part === id));
    all("tr[data-part]").forEach((e) => e.setAttribute("aria-selected", e.dataset.part === id));
    if (byHand) {
      history.replaceState(null, "", "#part-" + id);
    }
    const row = document.querySelector('tr[data-part="' + id + '"]');
    if (byHand && row) {
      row.scrollIntoView({ block: "nearest" });
    }
    if (byHand && detail.getBoundingClientRect().top > window.innerHeight - 80) {
      detail.scrollIntoView({ block: "start" });
    }
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-part]");
    if (target) {
      choose(target.dataset.part, true);
    }
  });
  document.addEventListener("keydown", (event) => {
    const target = event.target.closest && event.target.closest("[data-part]");
    if (target && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      choose(target.dataset.part, true);
    }
  });

  // Two drawings, of which one is shown, each with a scale of its own.
  const frame = document.querySelector(".graph-frame");
  const drawings = ["with-ops", "folded"].map((look) => {
    const svg = frame.querySelector("." + look);
    const natural = Number(svg.getAttribute("width"));
    const d = { fitting: () => Math.min(1, (frame.clientWidth - 24) / natural) };
    d.apply = (value) => {
      d.scale = Math.min(2, Math.max(0.1, value));
      svg.style.width = natural * d.scale + "px";
      svg.style.height = "auto";
    };
    d.apply(Math.max(d.fitting(), 0.7));
    return d;
  });
  let shown = 0;
  const show = (which) => {
    shown = which;
    frame.classList.toggle("show-ops", which === 0);
    frame.classList.toggle("show-folded", which === 1);
    document.getElementById("fold").textContent = which === 0 ? "fold" : "unfold";
  };
  const tools = {
    "fold": () => show(1 - shown),
    "zoom-out": () => drawings[shown].apply(drawings[shown].scale / 1.25),
    "zoom-in": () => drawings[shown].apply(drawings[shown].scale * 1.25),
    "zoom-fit": () => drawings[shown].apply(drawings[shown].fitting()),
    "zoom-full": () => drawings[shown].apply(1),
  };
  Object.keys(tools).forEach((id) => document.getElementById(id)
    .addEventListener("click", tools[id]));
  // A wide graph begins folded, where that makes it fit.
  show(drawings[0].fitting() < 0.7 && drawings[1].fitting() >= 0.7 ? 1 : 0);

  const wanted = /^#part-(\d+)$/.exec(location.hash);
  if (details.length > 0) {
    choose(wanted && document.getElementById("part-" + wanted[1]) ? wanted[1]
      : details[0].id.slice(5), false);
  }
})();
