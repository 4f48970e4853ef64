// Ctrl+Enter in the prompt starts a run: leave the field then, so that it closes and Space, arrows and the stage are free.
if (!window.specdecKeys) {
  window.specdecKeys = true;
  addEventListener("keydown", (event) => {
    const prompt = event.target.closest?.(".st-key-prompt textarea");
    if (prompt && event.key === "Enter" && (event.ctrlKey || event.metaKey)) setTimeout(() => prompt.blur(), 100);
  }, true);
}

// "Copy link": the address of this page with every setting in it, those included that it leaves out because they are as usual.
if (!window.specdecLink) {
  window.specdecLink = true;
  addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy-link");
    if (!button) return;
    const link = new URL(location.href);
    for (const [name, value] of Object.entries(JSON.parse(button.dataset.usual))) {
      if (!link.searchParams.has(name)) link.searchParams.set(name, value);
    }
    const said = button.nextElementSibling;
    let done = true;
    try {
      await navigator.clipboard.writeText(link.href);
    } catch {
      done = copyByHand(link.href); // without https there is no clipboard
    }
    said.textContent = done ? button.dataset.done : button.dataset.failed;
    setTimeout(() => (said.textContent = ""), 2500);
    if (!done) prompt(button.title, link.href);
  });
  const copyByHand = (text) => {
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
}

// A formula that is wider than its place can be scrolled, so it has to be reachable with the keyboard.
if (!window.specdecFormulas) {
  let later = 0;
  const reach = () => {
    later = 0;
    for (const formula of document.querySelectorAll(".katex-display")) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  };
  window.specdecFormulas = new MutationObserver(() => (later ||= setTimeout(reach, 400)));
  window.specdecFormulas.observe(document.body, { childList: true, subtree: true });
  document.fonts.addEventListener("loadingdone", reach); // with its own font a formula has another width
}
