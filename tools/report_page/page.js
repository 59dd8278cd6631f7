"use strict";
(function () {
  const all = (query) => Array.from(document.querySelectorAll(query));
  const details = all(".detail");

  // A partition's box, its row, its points and its bars are marked together; its details are shown.
  function choose(id, scroll) {
    const detail = document.getElementById("part-" + id);
    if (!detail) {
      return;
    }
    details.forEach((d) => { d.hidden = d !== detail; });
    all("[data-part]").forEach((e) => e.classList.toggle("chosen", e.dataset.part === id));
    all("tr[data-part]").forEach((e) => e.setAttribute("aria-selected", e.dataset.part === id));
    history.replaceState(null, "", "#part-" + id);
    const row = document.querySelector('tr[data-part="' + id + '"]');
    if (scroll && row) {
      row.scrollIntoView({ block: "nearest" });
    }
    if (scroll && detail.getBoundingClientRect().top > window.innerHeight - 80) {
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

  const frame = document.querySelector(".graph-frame");
  const drawing = frame && frame.querySelector("svg");
  if (drawing) {
    const natural = Number(drawing.getAttribute("width"));
    const fitting = () => Math.min(1, (frame.clientWidth - 2) / natural);
    let scale = Math.max(fitting(), 0.7);
    const apply = (value) => {
      scale = Math.min(2, Math.max(0.1, value));
      drawing.style.width = natural * scale + "px";
      drawing.style.height = "auto";
    };
    const zoom = { "zoom-out": () => apply(scale / 1.25), "zoom-in": () => apply(scale * 1.25),
      "zoom-fit": () => apply(fitting()), "zoom-full": () => apply(1) };
    Object.keys(zoom).forEach((id) => document.getElementById(id)
      .addEventListener("click", zoom[id]));
    apply(scale);
  }

  const wanted = /^#part-(\d+)$/.exec(location.hash);
  if (details.length > 0) {
    choose(wanted && document.getElementById("part-" + wanted[1]) ? wanted[1]
      : details[0].id.slice(5), false);
  }
})();
