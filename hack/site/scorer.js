// SPDX-License-Identifier: Apache-2.0

// How Sphinx ranks what its search finds: a title of a page or of a section first, and decision records, which say why
// and not how, last.
var Scorer = {
  score([page, , , , score]) {
    return page.startsWith("docs/adr/") ? score - 100 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 30,
  partialTitle: 14,
  term: 5,
  partialTerm: 2,
};
