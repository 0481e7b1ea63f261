// What the tests ask a page. It stands beside the page's own scripts, which know nothing of it.

globalThis.test = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const shown = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && one.getBoundingClientRect().width > 0;
  const called = (one) => (one.getAttribute("aria-label") ?? one.innerText ?? "").trim();
  const inView = (one) => {
    one.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    const { left, top, width, height } = one.getBoundingClientRect();
    const hit = document.elementFromPoint(left + width / 2, top + height / 2);
    return hit !== null && (one.contains(hit) || hit.contains(one));
  };

  // Colours, as WCAG compares them.
  const numbers = (colour) => { const [r, g, b, a = 1] = (colour.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], below) => [r, g, b].map((one, at) => one * a + below[at] * (1 - a));
  const background = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) {
      const layer = numbers(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one) => {
    const below = background(one), style = getComputedStyle(one);
    const [bright, dark] = [light(over(numbers(one.ownerSVGElement ? style.fill : style.color), below)), light(below)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    return { ratio: (bright + 0.05) / (dark + 0.05), wanted: large ? 3 : 4.5 };
  };

  const named = (one) => {
    const others = (one.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => document.getElementById(id)?.innerText);
    const labels = [...(one.labels ?? [])].map((label) => label.innerText);
    return [one.getAttribute("aria-label"), one.title, one.alt, one.innerText, ...others, ...labels].some((text) => text?.trim()) || all("img[alt], title", one).length > 0;
  };
  const CONTROLS = "button, a[href], input, select, textarea, summary, [role=tab], [role=option], [role=textbox], [role=log], [role=grid]";
  // What a role has to stand in, past what means nothing.
  const PARENTS = { tab: ["tablist"], row: ["grid", "table", "rowgroup"], gridcell: ["row"], columnheader: ["row"], option: ["listbox"], rowgroup: ["grid", "table"] };
  const role = (one) => one.getAttribute("role");
  const place = (one) => { let at = one.parentElement; while (at && [null, "presentation", "none"].includes(role(at))) at = at.parentElement; return at ? role(at) : null; };

  return {
    /** Follows a link within the pages; the pages have heard of it when this is done. */
    open(hash) {
      return new Promise((done) => {
        const before = location.href;
        addEventListener("hashchange", () => done(true), { once: true });
        location.hash = hash;
        if (location.href === before) done(true);
      });
    },

    /** Presses what has this name, if somebody could. */
    press(selector, name) {
      const one = all(selector).find((one) => shown(one) && called(one) === name && !one.disabled);
      if (!one || !inView(one)) return false;
      one.click();
      return true;
    },

    /** Gives a field the focus, and chooses all that it says. */
    choose(selector) {
      const one = all(selector).find((one) => shown(one) && !one.disabled);
      if (!one || !inView(one)) return false;
      one.focus();
      one.select();
      return document.activeElement === one;
    },

    /** The rows of a table as texts. */
    rows: (selector) => all(selector).map((row) => row.innerText),

    /** When the page has been drawn as it is now, with its movements at their ends. */
    async drawn() {
      for (const one of document.getAnimations()) one.finish();
      for (let turn = 0; turn < 2; turn++) await new Promise((done) => requestAnimationFrame(done));
    },

    /** What keeps somebody from using this page. */
    barriers() {
      const found = new Set();
      const tell = (what, one) => found.add(`${what}: ${one.cloneNode(false).outerHTML.slice(0, 160)} ${JSON.stringify((one.textContent ?? "").trim().slice(0, 40))}`);
      const main = document.querySelector("main");
      if (!document.documentElement.lang || !document.title) found.add("the page has no language or no title");
      if (all("main").filter(shown).length !== 1) found.add("there is not one main part");
      if (all("h1").filter(shown).length !== 1) found.add("there is not one h1");
      for (const one of all(CONTROLS)) if (shown(one) && !named(one)) tell("without a name", one);
      for (const one of all("img:not([alt])")) tell("a picture without a text", one);
      for (const one of all("[id]")) if (all("#" + CSS.escape(one.id)).length > 1) tell("an id that is there twice", one);
      for (const one of all("[role]")) if (PARENTS[role(one)] && !PARENTS[role(one)].includes(place(one))) tell(`the role ${role(one)} outside of ${PARENTS[role(one)]}`, one);
      for (const one of all("div[aria-label], span[aria-label]")) if (!role(one)) tell("a name without a role", one);
      for (const one of all("a[href][role], button[role]")) if (!["tab", "option"].includes(role(one))) tell("a control that is called something else", one);
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const one = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !shown(one) || one.closest(":disabled, [aria-hidden=true], noscript")) continue;
        const { ratio, wanted } = contrast(one);
        if (ratio < wanted) tell(`contrast ${ratio.toFixed(2)}, wanted is ${wanted}`, one);
      }
      let level = 1;
      for (const one of all("h1, h2, h3, h4", main ?? document).filter(shown)) {
        if (Number(one.tagName[1]) > level + 1) tell("a heading that leaves out a level", one);
        level = Number(one.tagName[1]);
      }
      // Marks in the lanes are small; the list of writes has all of them, too.
      for (const one of all("button:not(.mark), select, input:not([type=checkbox], [type=radio])")) if (shown(one) && one.getBoundingClientRect().height < 24) tell("too small to touch", one);
      if (document.documentElement.scrollWidth > innerWidth || (main && main.scrollWidth > main.clientWidth)) found.add("the page is wider than the screen");
      return [...found];
    },
  };
})();
