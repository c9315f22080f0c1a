"use strict";
// Figures are unpacked and drawn when they come into view. The counts on the root element let a
// test see that all went well: data-drawn, data-failed, data-overflow.
(() => {
  const root = document.documentElement;
  const failures = [];
  let drawn = 0;

  const told = () => {
    root.dataset.drawn = String(drawn);
    root.dataset.failed = String(failures.length);
    root.dataset.failures = failures.join("; ");
    root.dataset.overflow = String(root.scrollWidth - root.clientWidth);
  };
  window.addEventListener("error", (event) => { failures.push(event.message); told(); });
  window.addEventListener("unhandledrejection", (event) => {
    failures.push(String(event.reason)); told();
  });
  told();

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const unpack = async (name) => {
    const packed = document.getElementById("data-" + name).textContent;
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  // The page's own colours, light or dark, and room for labels on a narrow screen.
  const dressed = (layout, width, data) => {
    const narrow = width < 560;
    layout.font = { ...layout.font, color: colour("--text"), size: narrow ? 11 : 13 };
    layout.hoverlabel = {
      ...layout.hoverlabel, bgcolor: colour("--card"), bordercolor: colour("--line"),
      font: { color: colour("--text") },
    };
    for (const key of Object.keys(layout)) {
      if (/^xaxis/.test(key) && narrow) {
        layout[key].nticks = 5;
      }
    }
    if (layout.showlegend) {
      // Below the axis title, in room of its own: however many its lines, the plot stays as high.
      const columns = Math.max(1, Math.floor(width / 200));
      const lines = Math.ceil(data.length / columns);
      layout.legend.font = { size: narrow ? 11 : 12 };
      layout.height += 20 * (lines - 1);
      layout.legend.y = -66 / (layout.height - 100 - 20 * lines);
    }
    layout.autosize = true;
    delete layout.width;
    return layout;
  };

  const draw = async (box) => {
    if (box.dataset.state) return;
    box.dataset.state = "drawing";
    try {
      const figure = await unpack(box.dataset.figure);
      await Plotly.newPlot(box, figure.data, dressed(figure.layout, box.clientWidth, figure.data), {
        responsive: true, displaylogo: false, displayModeBar: false,
      });
      box.dataset.state = "drawn";
      drawn += 1;
    } catch (error) {
      box.dataset.state = "failed";
      failures.push(box.dataset.figure + ": " + error);
    }
    told();
  };

  const boxes = [...document.querySelectorAll(".plot")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) draw(entry.target);
    }
  }, { rootMargin: "300px" });
  boxes.forEach((box) => watcher.observe(box));

  for (const menu of document.querySelectorAll("select[data-shows]")) {
    const ids = [...menu.options].map((option) => option.value);
    const show = () => ids.forEach((id) => {
      document.getElementById(id).hidden = id !== menu.value;
    });
    menu.addEventListener("change", show);
    // An address may end in what to show: #problem-...
    const follow = () => {
      const wanted = decodeURIComponent(location.hash.slice(1));
      if (!ids.includes(wanted)) return;
      menu.value = wanted;
      show();
      menu.scrollIntoView();
    };
    window.addEventListener("hashchange", follow);
    show();  // a browser may have kept an earlier choice
    follow();
  }

  // A click on a heading sorts by its column; another one turns the order round.
  const sortable = (text) => {
    const found = text.replace(/,/g, "").match(/^[+-]?[\d.]+(e[+-]?\d+)?/);
    if (!found) return [1, text];
    const units = { ns: 1e-9, "µs": 1e-6, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
      B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
    const unit = text.replace(/,/g, "").slice(found[0].length).trim().split(/[\s/]/)[0];
    return [0, Number(found[0]) * (units[unit] ?? 1)];
  };
  const before = (a, b) => (a[0] - b[0]) || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const sort = () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => sortable(row.cells[column].textContent.trim());
        const rows = [...body.rows].sort((a, b) => before(key(a), key(b)));
        body.append(...(down ? rows.reverse() : rows));
      };
      heading.tabIndex = 0;
      heading.addEventListener("click", sort);
      heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    });
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const box of boxes) {
      if (box.dataset.state === "drawn") {
        Plotly.relayout(box, { "font.color": colour("--text") });
      }
    }
  });

  // Printing, and tests, want every figure that is not hidden.
  const drawAll = () => boxes.filter((box) => box.offsetParent !== null).forEach(draw);
  window.addEventListener("beforeprint", drawAll);
  if (location.hash === "#draw-all") drawAll();
  root.dataset.figures = String(boxes.filter((box) => box.offsetParent !== null).length);
})();
