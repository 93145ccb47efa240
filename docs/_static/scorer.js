// Order of the search's results: what somebody wants to do comes before how it was decided and
// what changed. Sphinx puts this file before its own search tools.
var Scorer = {
  score: ([page, , , , score]) => {
    const first = /^(tutorials|how_to)\/|^troubleshooting$/;
    const last = /^(design\/|changes$|contributing$|architecture$|performance$|papers$|recipe_runs$|tasks$)/;
    return score + (first.test(page) ? 100 : last.test(page) ? -100 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
