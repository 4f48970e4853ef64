// Ctrl+Enter in the prompt starts a run: leave the field then, so that it closes and Space, arrows and the stage are free.
if (!window.specdecKeys) {
  window.specdecKeys = true;
  addEventListener("keydown", (event) => {
    const prompt = event.target.closest?.(".st-key-prompt textarea");
    if (prompt && event.key === "Enter" && (event.ctrlKey || event.metaKey)) setTimeout(() => prompt.blur(), 100);
  }, true);
}
