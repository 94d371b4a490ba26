"""From logged decisions to estimates, and how sure they are.

Read in this order; each module uses only those above it:

* `engine`: soft values and linear solves for all persons of a task at once;  `persons`: their choices and derivatives;
* `parameters`: what is known and what is tied;  `logged_moves`: transitions that come from the table itself;
* `likelihood`: the likelihood of all;  `large`: with very many rewards;
* `preconditioner`, `metric`: the curvature;  `profiled`: standard errors from products;
* `ascent`: one climb;  `starts`: where climbs begin;
* `precision`: what the decisions determine, and standard errors;
* `temperatures`: how much the experts' temperatures differ;  `fit`: the search for the most likely answer;
* `intervals`: profile-likelihood intervals;  `known`: what the user knows;
* `weighted_likelihood`, `lookahead_fit`, `lookahead_solution`: look-ahead that is not exponential;
* `maximum_likelihood`: the solver `MaximumLikelihood`;
* `covariates`: the design of a study of persons;  `weak_priors`: what holds means, spread and correlation;
* `marginal`: the likelihood of a population;  `marginal_ascent`: its maximum;  `effect_profiles`: along one effect;
* `spread_average`: persons where the spread is hardly known;  `effects`: what follows;  `population`: the solver `Population`;
* `contrasts`: differences of rewards;  `horizon_tests`: do the experts plan equally far;
* `bootstrap`: tables that might have been logged instead;  `model_checks`: does the model fit;
* `lookahead_tests`, `lookahead_comparison`: in what shape do the experts look ahead;
* `goal_scores`, `goal_groups`, `goal_test`, `goals`: who shares a goal with whom;
* `study_design`, `recovered`, `recover`: can a design show an effect.
"""
