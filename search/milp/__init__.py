"""The mixed-integer model of a problem: a relaxation of the simulator, solved by MathOpt."""
