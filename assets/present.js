// In front of a class: keys alone lead through the stage and the lesson. The switch is in specdec/ui/present.py.
if (!window.specdecPresent) {
  window.specdecPresent = true;
  const KEYS = { " ": "on", ArrowRight: "on", PageDown: "on", ArrowLeft: "back", PageUp: "back", Home: "start", End: "end" };
  const WRITES = "input:not([type=checkbox], [type=radio], [type=range], [type=button]), textarea, select, [contenteditable=true]";
  const POPUPS = "[role=dialog], [role=listbox], [role=menu]";
  const OWN = `input[type=range], [role=slider], [role=radiogroup], [role=tablist], [role=spinbutton], ${POPUPS}`;
  const said = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().replace(/^(['"])(.*)\1$/, "$2");
  const main = () => document.querySelector("[data-testid=stMain]");
  const card = () => (said("--card") ? `${location.pathname} ${said("--card")}` : "");

  // While a page is drawn anew its style may be gone for a moment; the class still looks at the same screen.
  let shown = -Infinity;
  const presenting = () => {
    if (said("--presenting")) shown = performance.now();
    return performance.now() - shown < 700;
  };
  setInterval(presenting, 100);

  // A link that is pressed while Streamlit draws the page is lost: wait until it is at rest, and press again if nothing came of it.
  let asked = 0;
  function lead(name) {
    const own = ++asked, from = card(), until = performance.now() + 8000;
    let pressed = -Infinity;
    (function press() {
      const now = performance.now();
      if (own !== asked || now > until || card() !== from) return;
      const link = document.querySelector(`.st-key-card_${name} a`);
      const rests = document.querySelector("[data-testid=stApp]")?.getAttribute("data-test-script-state") === "notRunning";
      if (link && rests && now - pressed > 1500) {
        pressed = now;
        link.click();
      }
      setTimeout(press, 50);
    })();
  }

  addEventListener("keydown", (event) => {
    if (!presenting() || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0];
    if (target.closest?.(WRITES)) return event.key === "Escape" ? target.blur() : undefined;
    if (event.key === "Escape") {
      if (!document.querySelector(POPUPS)) document.querySelector(".st-key-present_switch input")?.click();
      return;
    }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (target.closest?.(OWN)) return;
      event.preventDefault();
      return main()?.scrollBy({ top: event.key === "ArrowDown" ? 160 : -160 });
    }
    const what = event.shiftKey && event.key === " " ? "back" : KEYS[event.key];
    if (!what || (event.key !== " " && target.closest?.(OWN))) return;
    if (event.key === " " && target.closest?.("button, summary, [role=button], input, a")) return; // it has a meaning there
    event.preventDefault();
    event.stopPropagation();
    const go = new CustomEvent("specdec:go", { detail: what, cancelable: true });
    dispatchEvent(go);
    if (go.defaultPrevented || event.repeat) return;
    const closed = document.querySelector("details.asked:not([open])");
    if (what === "on" && closed) {
      closed.open = true;
      return closed.scrollIntoView({ block: "nearest" });
    }
    if (what === "on") lead("next");
    else if (what === "back") lead("back");
    else main()?.scrollTo({ top: what === "end" ? main().scrollHeight : 0 });
  }, true);

  // After a click with the mouse the focus is let go, so that Space goes on and does not press the same button again.
  addEventListener("pointerup", (event) => {
    if (!presenting() || event.composedPath()[0].closest?.(WRITES)) return;
    setTimeout(() => {
      const focused = document.activeElement;
      if (focused && !focused.matches(WRITES) && !focused.shadowRoot) focused.blur();
    }, 200);
  }, true);

  addEventListener("click", (event) => {
    if (event.target.closest?.(".st-key-notes_print button")) print();
  });

  // What a card speaks of is brought into sight once, as soon as it is there.
  let seen = "";
  setInterval(() => {
    const name = card();
    if (name === seen) return;
    const wanted = said("--card-places");
    const found = wanted ? [...document.querySelectorAll(wanted)].filter((e) => e.offsetHeight > 20) : [];
    if (wanted && !found.length) return;
    seen = name;
    const last = found.at(-1);
    if (last && last.getBoundingClientRect().bottom > innerHeight) last.scrollIntoView({ block: "end", behavior: "smooth" });
  }, 300);
}
