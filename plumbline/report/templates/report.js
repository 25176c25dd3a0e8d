"use strict";
// What a page does beside being read: it draws charts as a reader gets to them, pages through the table of all numbers,
// and shows what a mark or a cell says. Texts from outside are only ever set as text. Nothing is loaded from anywhere.
(() => {
  const find = (id) => document.getElementById(id);
  const make = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // Characters that hide or reorder what a reader sees, as plumbline.visible shows them.
  const visible = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (c) => {
    const code = c.codePointAt(0), hex = code.toString(16);
    return { 9: "\\t", 10: "\\n", 13: "\\r" }[code] ?? (code <= 0xffff ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0"));
  });

  // --- Data: compressed (zlib) and in Base64.

  async function unpacked(id) {
    const packed = atob(find(id).textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const asText = (bytes) => new TextDecoder().decode(bytes);

  // --- Tips: of cells with `data-tip`, and of the marks of charts.

  const tip = find("tip");
  function showTip(lines, x, y) {
    tip.replaceChildren(...lines.map((line) => make("div", line)));
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - width - 8)) + "px";
    tip.style.top = (y + 16 + height > innerHeight ? Math.max(4, y - height - 10) : y + 16) + "px";
  }
  const hideTip = () => { tip.hidden = true; };
  const ofMark = (handler, event, item, value) => {
    if (value === null || value === undefined || value === "") return hideTip();
    // A field that a mark lacks is "undefined"; an undefined value is one as well, and is said.
    const lines = typeof value !== "object" ? [value]
      : Object.entries(value).filter(([name, said]) => said !== "undefined" || name === "value").map(([name, said]) => `${name}: ${said}`);
    showTip(lines.map(visible), event.clientX, event.clientY);
  };
  if (tip) {
    const tipped = (event) => event.target.closest?.("[data-tip]");
    document.addEventListener("pointerover", (event) => {
      const cell = tipped(event);
      if (cell) showTip([cell.dataset.tip], event.clientX, event.clientY);
    });
    document.addEventListener("pointerout", (event) => { if (tipped(event)) hideTip(); });
    document.addEventListener("focusin", (event) => {
      const cell = tipped(event), box = cell?.getBoundingClientRect();
      if (cell && cell.matches(":focus-visible")) showTip([cell.dataset.tip], box.left, box.bottom - 10); else hideTip();
    });
    addEventListener("scroll", hideTip, { passive: true });
    addEventListener("keydown", (event) => { if (event.key === "Escape") { hideTip(); closeDock(); } });
  }

  // --- Charts: those in sight first, then, while nothing else is to be done, those that would be printed.

  let started = null;
  const library = () => started ??= Promise.all([unpacked("charts"), unpacked("library")]).then(([charts, code]) => {
    // An inline script, which the policy allows by its hash.
    document.head.append(make("script", asText(code)));
    return JSON.parse(asText(charts));
  });

  async function draw(place) {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "now";
    try {
      const { config, specs } = await library();
      await vegaEmbed(place, specs[place.dataset.chart], {
        ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: ofMark,
        config: { ...config, background: null, aria: false },
      });
      const drawing = place.querySelector("svg"), width = Number(drawing.getAttribute("width"));
      drawing.setAttribute("aria-hidden", "true"); // its place has the title, and the numbers are in the table
      drawing.style.maxWidth = width + "px";
      drawing.style.minWidth = Math.min(width, 560) + "px";
      place.dataset.drawn = "yes";
    } catch (error) {
      place.dataset.drawn = "failed";
      place.textContent = `This chart could not be drawn: ${error.message}`;
    }
    reachable();
  }

  const wanted = [];
  let drawing = null;
  function drawNext() {
    drawing ??= (async () => {
      while (wanted.length) await draw(wanted.shift());
      drawing = null;
    })();
    return drawing;
  }
  const places = [...document.querySelectorAll("[data-chart]")];
  if (!places.length) document.documentElement.dataset.drawn = "all";
  else {
    const seen = new IntersectionObserver((entries) => {
      const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
      near.forEach((place) => seen.unobserve(place));
      wanted.unshift(...near);
      if (near.length) drawNext();
    }, { rootMargin: "300px" });
    places.forEach((place) => seen.observe(place));
    const idle = window.requestIdleCallback ?? ((then) => setTimeout(then, 50));
    const rest = () => {
      const next = places.find((place) => !place.dataset.drawn && !place.closest("details:not([open])"));
      if (next) draw(next).then(() => idle(rest, { timeout: 500 }));
      else document.documentElement.dataset.drawn = "all";
    };
    addEventListener("load", () => setTimeout(() => idle(rest), 300));
    addEventListener("beforeprint", () => { places.forEach((place) => { if (!place.closest("details:not([open])")) draw(place); }); });
  }

  // What is wider than its place can be scrolled by keyboard.
  function reachable() {
    for (const wide of document.querySelectorAll(".wide, .chart")) {
      if (wide.scrollWidth > wide.clientWidth + 1) wide.tabIndex = 0;
      else if (wide.id !== "rows") wide.removeAttribute("tabindex");
    }
  }
  addEventListener("resize", reachable);
  document.addEventListener("toggle", reachable, true);
  reachable();

  // --- The dock: one number, wherever it was chosen.

  const dock = find("dock");
  let opener = null;
  function closeDock() {
    if (!dock || dock.hidden) return;
    dock.hidden = true;
    opener?.focus();
  }
  function copier(label, text) {
    const button = make("button", label, { type: "button" });
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { prompt("Copy:", text); }
    });
    return button;
  }
  function openDock(id, title, said, model, dataset) {
    opener = document.activeElement;
    const list = make(typeof said === "string" ? "p" : "dl", typeof said === "string" ? said : ""), command = `plumbline explain ${id}`;
    if (typeof said !== "string") for (const [name, value] of said) list.append(make("dt", name), make("dd", visible(value)));
    const close = make("button", "Close", { type: "button" });
    close.addEventListener("click", closeDock);
    const line = make("p");
    line.append(make("code", command), " ", copier("copy", command), " ", copier("copy a link", location.href.split("#")[0] + "#row=" + id), " ", close);
    dock.replaceChildren(make("h2", visible(title)), list, line, ...pagesOf(model, dataset));
    dock.hidden = false;
  }

  // --- Pages of Dagster and MLflow: paths of the server of `plumbline ui`, linked where that serves this page.

  if (["127.0.0.1", "localhost", "[::1]"].includes(location.hostname) && location.pathname.startsWith("/plumbline/")) {
    for (const link of document.querySelectorAll("a[data-page]")) {
      if (new URL(link.dataset.page, location.href).host !== location.host) continue;
      for (const [name, value] of [["href", link.dataset.page], ["target", "_blank"], ["rel", "noopener noreferrer"]]) link.setAttribute(name, value);
    }
    for (const place of document.querySelectorAll(".runs")) place.hidden = false;
  }
  function pagesOf(model, dataset) {
    const places = [...document.querySelectorAll(".runs:not([hidden])")].filter((place) => place.dataset.model === visible(model));
    const cells = places.flatMap((place) => [...place.children]).filter((cell) => cell.dataset.dataset === visible(dataset));
    return cells.map((cell) => { const line = make("p", undefined, { class: "runs" }); line.append(cell.cloneNode(true)); return line; });
  }

  // --- The table of all numbers, as columns of codes into their distinct values; see plumbline.report.payload.

  const IDENTITY = ["attribute", "condition", "dataset", "definition", "event", "group", "instruction", "k", "metric",
    "model", "occupation", "probe", "prompt", "reference_group", "scorer", "seed", "statistic", "suite"];
  const OF = ["suite", "attribute", "group", "reference_group", "event", "probe", "k", "occupation", "prompt", "instruction", "scorer", "seed"];
  const EVIDENCE = { evidence: "evidence", no_evidence: "no evidence", evidence_of_none: "evidence of none", not_tested: "not tested", undefined: "undefined" };
  const MARK = { evidence: "●", no_evidence: "○", evidence_of_none: "■", not_tested: "", undefined: "–" };
  const SHOWN = 50;

  class Table {
    constructor(bytes) {
      const length = new DataView(bytes.buffer).getUint32(0, true);
      const header = JSON.parse(asText(bytes.subarray(4, 4 + length)));
      this.rows = header.rows;
      this.columns = {};
      let at = 4 + length;
      for (const { name, values, bytes: width } of header.columns) {
        const codes = new Uint32Array(this.rows);
        for (let plane = 0; plane < width; plane++, at += this.rows)
          for (let row = 0; row < this.rows; row++) codes[row] |= bytes[at + row] << (8 * plane);
        this.columns[name] = { values, codes };
      }
    }

    value(name, row) {
      const { values, codes } = this.columns[name];
      return values[codes[row]];
    }

    // The id of a row, as plumbline.catalog.schema names it: of what it measures, not of what was found.
    id(row) {
      const parts = [];
      for (const name of IDENTITY) {
        const value = this.value(name, row);
        if (value !== null) parts.push(JSON.stringify(name) + ":" + JSON.stringify(value));
      }
      return sha256("{" + parts.join(",") + "}").slice(0, 12);
    }

    // Rows of which every word of the search is in some column, and that have the values of the filters.
    chosen(search, filters) {
      let tests = [];
      for (const [name, value] of Object.entries(filters)) {
        const { values, codes } = this.columns[name], code = values.indexOf(value);
        tests.push((row) => codes[row] === code);
      }
      for (const word of search.toLowerCase().split(/[\s·]+/).filter(Boolean)) {
        const found = [];
        for (const name of [...IDENTITY, "reason"]) {
          const { values, codes } = this.columns[name];
          const fits = Uint8Array.from(values, (value) => value !== null && String(value).toLowerCase().includes(word) ? 1 : 0);
          if (fits.includes(1)) found.push([fits, codes]);
        }
        const isId = !found.length && /^[0-9a-f]{8,12}$/.test(word);
        tests.push(isId ? (row) => this.id(row).startsWith(word) : (row) => found.some(([fits, codes]) => fits[codes[row]]));
      }
      const rows = [];
      for (let row = 0; row < this.rows; row++) if (tests.every((test) => test(row))) rows.push(row);
      return rows;
    }

    // Distinct values ascend, so that codes sort as values do; a missing value is code 0, and comes last.
    sorted(rows, name, descending) {
      const { values, codes } = this.columns[name], last = values[0] === null;
      const sign = descending ? -1 : 1;
      return rows.sort((a, b) => {
        const x = codes[a], y = codes[b];
        if (last && (x === 0) !== (y === 0)) return x === 0 ? 1 : -1;
        return sign * (x - y) || a - b;
      });
    }
  }

  const number = (value) => value === null ? "" : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(2).replace("-", "−") : String(value).replace("-", "−");
  const spoken = (value) => value === null ? "" : visible(value).replaceAll("_", " ");

  const COLUMNS = [
    ["Model", "model", (t, r) => visible(t.value("model", r))],
    ["Dataset", "dataset", (t, r) => visible(t.value("dataset", r))],
    ["Metric", "metric", (t, r) => `${spoken(t.value("metric", r))} (${spoken(t.value("definition", r))})`],
    ["Of", "event", (t, r) => OF.map((name) => t.value(name, r)).filter((value) => value !== null).map(spoken).join(" · ")],
    ["Condition", "condition", (t, r) => spoken(t.value("condition", r)) + (t.value("statistic", r) === "estimate" ? "" : `, ${spoken(t.value("statistic", r))}`)],
    ["Value", "value", (t, r) => t.value("value", r) === null ? "undefined" : number(t.value("value", r))],
    ["Interval", "ci_low", (t, r) => t.value("ci_low", r) === null ? "" : `${number(t.value("ci_low", r))} to ${number(t.value("ci_high", r))}`],
    ["q", "q", (t, r) => number(t.value("q", r))],
    ["n", "n", (t, r) => t.value("n", r) === null ? "" : t.value("n", r).toLocaleString("en")],
    ["Evidence", "evidence", (t, r) => `${MARK[t.value("evidence", r)]} ${EVIDENCE[t.value("evidence", r)]}`],
  ];
  const NUMERIC = new Set(["value", "ci_low", "q", "n"]);

  let loading = null;
  const table = () => loading ??= unpacked("table").then((bytes) => new Table(bytes));
  const view = { rows: [], page: 0, sort: null, descending: false };

  async function showRow(id) {
    const all = await table();
    let row = -1;
    for (let at = 0; at < all.rows && row < 0; at++) {
      if (all.id(at) === id) row = at;
      if (at % 20000 === 19999) await new Promise((then) => setTimeout(then));
    }
    if (row < 0) return openDock(id, "This row is not in this page", "It may be in the metric table, where plumbline explain finds it.");
    describe(all, row, id);
  }
  function describe(all, row, id) {
    const entries = [];
    for (const [name, column] of Object.entries(all.columns)) {
      const value = column.values[column.codes[row]];
      if (value !== null) entries.push([name.replaceAll("_", " "), typeof value === "number" ? number(value) : value]);
    }
    openDock(id, `${spoken(all.value("metric", row))}, ${all.value("model", row)}`, entries, all.value("model", row), all.value("dataset", row));
  }

  function choose(keepPage = false) {
    return table().then((all) => {
      const form = find("filters"), filters = {};
      for (const name of ["model", "dataset", "attribute", "evidence"]) {
        const chosen = form.elements[name].value;
        if (chosen) filters[name] = JSON.parse(chosen);
      }
      view.rows = all.chosen(form.elements.search.value, filters);
      if (view.sort) all.sorted(view.rows, view.sort, view.descending);
      if (!keepPage) view.page = 0;
      show(all);
    });
  }
  function show(all) {
    const pages = Math.max(1, Math.ceil(view.rows.length / SHOWN));
    view.page = Math.max(0, Math.min(view.page, pages - 1));
    const shown = view.rows.slice(view.page * SHOWN, (view.page + 1) * SHOWN);
    const made = make("table"), head = make("tr"), body = make("tbody");
    for (const [title, name] of COLUMNS) {
      const cell = make("th", undefined, { scope: "col" }), button = make("button", title, { type: "button" });
      if (NUMERIC.has(name)) cell.className = "n";
      if (view.sort === name) cell.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
      button.addEventListener("click", () => {
        view.descending = view.sort === name && !view.descending;
        view.sort = name;
        choose().then(() => find("rows").querySelectorAll("th button")[COLUMNS.findIndex((column) => column[1] === name)].focus());
      });
      cell.append(button);
      head.append(cell);
    }
    head.append(make("th", "Row", { scope: "col" }));
    for (const row of shown) {
      const line = make("tr"), id = all.id(row), last = make("td");
      for (const [, name, said] of COLUMNS) line.append(make("td", said(all, row), NUMERIC.has(name) ? { class: "n" } : {}));
      last.append(make("a", id, { href: "#row=" + id, class: "row" }));
      line.append(last);
      body.append(line);
    }
    const top = make("thead");
    top.append(head);
    made.append(top, body);
    find("rows").replaceChildren(made);
    find("found").textContent = `${view.rows.length.toLocaleString("en")} of ${all.rows.toLocaleString("en")} rows`;
    find("pages").querySelector("span").textContent = `page ${(view.page + 1).toLocaleString("en")} of ${pages.toLocaleString("en")}`;
    for (const button of find("pages").querySelectorAll("button"))
      button.disabled = Number(button.dataset.step) < 0 ? view.page === 0 : view.page === pages - 1;
    reachable();
  }

  let begun = false;
  async function begin() {
    if (begun) return;
    begun = true;
    const all = await table(), form = find("filters");
    for (const name of ["model", "dataset", "attribute", "evidence"]) {
      const choice = form.elements[name];
      choice.append(make("option", "all", { value: "" }));
      for (const value of all.columns[name].values)
        choice.append(make("option", name === "evidence" ? EVIDENCE[value] : value === null ? "none" : name === "attribute" ? spoken(value) : visible(value), { value: JSON.stringify(value) }));
    }
    form.addEventListener("input", () => choose());
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => { view.sort = null; setTimeout(choose); });
    find("pages").addEventListener("click", (event) => {
      if (!event.target.dataset.step) return;
      view.page += Number(event.target.dataset.step);
      show(all);
    });
    for (const id of ["filters", "rows", "pages"]) find(id).hidden = false;
    await choose();
  }
  if (find("table")) {
    new IntersectionObserver((entries, observer) => {
      if (entries.some((entry) => entry.isIntersecting)) { observer.disconnect(); begin(); }
    }, { rootMargin: "600px" }).observe(find("numbers"));
  }

  // --- Links: to a row, to what is folded, to a model's numbers.

  function follow() {
    const target = decodeURIComponent(location.hash.slice(1));
    if (target.startsWith("row=")) return showRow(target.slice(4));
    if (target.startsWith("model=")) return showNumbers(new URLSearchParams(location.hash.slice(1)));
    const place = target && find(target);
    if (!place) return;
    for (let folded = place.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
    place.scrollIntoView();
  }
  async function showNumbers(chosen) {
    await begin();
    for (const [name, value] of chosen) if (["model", "dataset"].includes(name)) find("filters").elements[name].value = JSON.stringify(value);
    await choose();
    find("numbers").scrollIntoView();
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a");
    if (tip) hideTip();
    if (dock && !dock.contains(event.target)) dock.hidden = true;
    if (link?.dataset.row && link.dataset.tip) openDock(link.dataset.row, link.closest("tr").cells[0].textContent, link.dataset.tip, link.closest("tr").dataset.model, link.dataset.dataset);
    else if (link?.dataset.model) begin().then(() => { find("filters").elements.model.value = JSON.stringify(link.dataset.model); choose(); });
    else if (link?.hash && link.hash === location.hash) follow();
  });
  addEventListener("hashchange", follow);
  if (location.hash) follow();

  // --- sha256 of a text, in hexadecimal digits: browsers offer their own to pages from https alone.

  const K = [], START = [];
  for (let n = 2; K.length < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    if (START.length < 8) START.push((Math.sqrt(n) % 1) * 2 ** 32 | 0);
    K.push((Math.cbrt(n) % 1) * 2 ** 32 | 0);
  }
  const work = new Int32Array(64);
  function sha256(text) {
    const bytes = new TextEncoder().encode(text);
    const padded = new Uint8Array((bytes.length + 9 + 63) >> 6 << 6), words = new DataView(padded.buffer);
    padded.set(bytes);
    padded[bytes.length] = 0x80;
    words.setUint32(padded.length - 4, bytes.length * 8);
    const state = Int32Array.from(START), turned = (x, n) => (x >>> n) | (x << (32 - n));
    for (let block = 0; block < padded.length; block += 64) {
      for (let i = 0; i < 16; i++) work[i] = words.getInt32(block + 4 * i);
      for (let i = 16; i < 64; i++) {
        const x = work[i - 15], y = work[i - 2];
        work[i] = work[i - 16] + (turned(x, 7) ^ turned(x, 18) ^ (x >>> 3)) + work[i - 7] + (turned(y, 17) ^ turned(y, 19) ^ (y >>> 10));
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + work[i]) | 0;
        const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
      }
      [a, b, c, d, e, f, g, h].forEach((value, i) => { state[i] = (state[i] + value) | 0; });
    }
    return Array.from(state, (value) => (value >>> 0).toString(16).padStart(8, "0")).join("");
  }
})();
