// Search, copy buttons and one language for all examples. The pages below /docs show everything without this script.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");

  // Copy buttons.
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const shown = [...button.parentElement.querySelectorAll(".code")].find((code) => code.offsetParent);
      button.textContent = (await copied(shown)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
  async function copied(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch { // browsers have no clipboard on pages without TLS, except on localhost
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  }

  // Choosing a language in one example chooses it in all, and for the next visit.
  const tabs = [...document.querySelectorAll(".tab")];
  const choose = (language) => {
    for (const tab of tabs) if (tab.value === language) tab.checked = true;
  };
  for (const tab of tabs) tab.addEventListener("change", () => {
    const before = tab.parentElement.getBoundingClientRect().top;
    choose(tab.value);
    scrollBy({ top: tab.parentElement.getBoundingClientRect().top - before, behavior: "instant" });
    try { localStorage.setItem("language", tab.value); } catch { /* storage is switched off */ }
  });
  try { choose(localStorage.getItem("language")); } catch { /* storage is switched off */ }

  // Search over operations, errors and guides. The index is loaded when the box is first used.
  const search = document.querySelector(".search");
  const box = search.querySelector("input");
  const list = search.querySelector("ul");
  const count = search.querySelector("output");
  const root = search.dataset.root;
  search.hidden = false;
  let parts, loading;
  async function load() {
    try {
      const answer = await fetch(`${root}search.json`);
      parts = (await answer.json()).map(([kind, title, href, near, text]) => ({ kind, title, href, near: near.toLowerCase(), text }));
      show();
    } catch {
      loading = undefined;
      count.textContent = "The search needs the node, which does not answer";
      count.classList.add("empty");
    }
  }
  const rank = (part, words) => {
    const title = part.title.toLowerCase();
    const all = `${title} ${part.near} ${part.text.toLowerCase()}`;
    if (!words.every((word) => all.includes(word))) return 9;
    if (title.startsWith(words.join(" "))) return 0;
    if (words.every((word) => title.includes(word))) return 1;
    return words.every((word) => title.includes(word) || part.near.includes(word)) ? 2 : 3;
  };
  function excerpt(part, word) {
    const at = part.title.toLowerCase().includes(word) ? 0 : part.text.toLowerCase().indexOf(word);
    const from = at < 40 ? 0 : part.text.indexOf(" ", at - 40) + 1;
    return (from ? "… " : "") + part.text.slice(from, from + 110) + " …";
  }
  function show() {
    if (!parts) return void (loading ??= load());
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? parts
      .map((part, place) => ({ part, place, rank: rank(part, words) }))
      .filter((one) => one.rank < 9)
      .sort((a, b) => a.rank - b.rank || a.place - b.place) : [];
    list.replaceChildren(...found.slice(0, 12).map(({ part }) => {
      const link = document.createElement("a");
      link.href = root + part.href;
      for (const [name, text] of [["kind", part.kind], ["title", part.title], ["excerpt", excerpt(part, words[0])]]) {
        const span = document.createElement("span");
        span.className = name;
        span.textContent = text;
        link.append(span);
      }
      link.addEventListener("click", close);
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
    list.hidden = !found.length;
    count.textContent = words.length ? `${found.length || "Nothing"} found` : "";
    count.classList.toggle("empty", Boolean(words.length) && !found.length);
  }
  function close() {
    list.hidden = true;
    count.classList.remove("empty");
  }
  box.addEventListener("input", show);
  box.addEventListener("focus", show);
  document.addEventListener("click", (event) => search.contains(event.target) || close());
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      box.select();
      box.focus();
    }
  });
  search.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const place = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown") (links[place + 1] ?? links[place])?.focus();
    else if (event.key === "ArrowUp") (place > 0 ? links[place - 1] : box).focus();
    else if (event.key === "Enter" && document.activeElement === box) links[0]?.click();
    else if (event.key === "Escape") { box.focus(); close(); } else return;
    event.preventDefault();
  });
})();
