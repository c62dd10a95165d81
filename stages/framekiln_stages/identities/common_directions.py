"""Directions in which coverings and lost detail move all embeddings, whoever the person is.

Coverings: without these directions, strangers in hoods are no longer alike. They were chosen on 372 photos of 120
people of Labeled Faces in the Wild, each with ten drawn coverings (sunglasses, mask, hand, hat, strands and a curtain
of hair over an eye, hoods with and without folds, scarf, balaclava). They are the six directions in which embeddings of
a photo differ most with a covering. More than six cost recognition of bare faces (docs/log.md).

Lost detail: an embedding's length in these directions predicts the cosine that strangers share. They come from the mean
differences that 34 kinds of damage make on 176 photos of 110 people of the same set. The kinds are motion blur,
defocus, noise, JPEG, low light, shrinking and mixtures. Three to eight directions do as well, also for kinds that were
left out, except motion.
"""

import base64
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_COVERINGS = {
    "mobilefacenet": (  # 8-bit numbers
        "TsI9I=R?c6LOl`L2Rat-3e@EfL;vsN`u@1103-v^C-Upr=iN3MvmN)_3jq(=*aGJI?)yFi^6U)HuL%D~As`VQ*aPYhxY}JG695|D>|O;A)%6`z"
        "Tp|6c(C-5?=KKoW)Z{P@?NIls9{eHF`wONbG0wdX4>8j!PzNB<sY@B_=NA3#`9m_s0+|omFv|t})3w<XJ>U@wIuA6!+_!W88S5j|?Y{{@6)G6U"
        "IqVwu{vPoy5Azzu$=Wg<{QvCs&=OD2k_9m;3@GdU0P*kC<0|O>0rvj)YQrbw??w^mo(uOC1<=?!#1Gs5;?(Z~`xxsD84X7r%hEzA76#PaC*3>v"
        "9ODW=4h!<-3cl|72M)~lAV}Bg8AmMhA|4!BM)%?R(9$st^9>)<@aHe~0`(Nl^V+-}LHZu}6d?b>;s-p$bFL2Y+i3?47%Jq?f6%D|AQcWIDc|eu"
        "v&Ie-?V30%0Mi7_*gD$F2Rj?+JqXm|^e6D<_c#*7_#o{u<;a-(1thKSItnJ%@7xO(;{XF%C*eT}@ghS(4&e<?CF0}u)+hGg*WUFe?X?j2?G%!{"
        "|Iy_lBI5Dm&HMHU)V<KOB=X7hA37-;<iZm5+7DFhA|$B~;O+hpA}AO93%@z}KTr1d7nJ9w76GmM1o{&!H#iy;*3AJS9oqUmVj2(b8#4wfDeEQe"
        "8v)A*F}R@|!H^~nw)-s!@!rnO;?N5Q^RL0XyC&N}7Yn{6&CUTJ8Og%$*B{sN2j)``CNA&P=^70k{^sKu@%f%SQTqS!{~!G72)zdhJMY=r4Y33X"
        "CDr&j^*Of5<v1<O5=9OR<^%p18Vk=f?8+b;_wMXo1~1SGHx2th2i4a*YPTy5;o!r_`_V~E<3An)DnLBwBI8K-K;PRJCBrK16&V;Q5Agm3@$|;H"
        "BKEon_yXj|@9XpW@Y>D!{XjG#!{jj;)6e?&^TbWq_|E?wDa$1j8_pcQ$@k(-vHc+`#|*9lD-aMq)-wvu"
    )
}
_BLURS = {
    "mobilefacenet": (
        "DB$?tJkmMY(Ed-u&m;R@T`DdU_Pqb~>MGgb0wV(pO}Z{B;t(j8HBcYp?}ym{6YMANME?#$(L>A}#5NBy-GL|Y+q3l~F%Zkz`ySpt#sdC3GFJ#p6"
        ")+t9!rQzF=qB9P=c?Km;K#}W=H>wD@EHE|&EE?)AN3_K`q~K+T(nOO3_l(Je?va*66);w<VCWw6+=4eKlk>{77!{F6>iiu^vpc{$O&g())*J;7`"
        "rad?9<Zxu^#uw8n*!g`U^J!D)Sig{KDNP3-d5H^U5c_p36ES><|RgB^|-l8Y2YA?cM7Bue$IL3Fk2$2V^nC^-(h#3BKwv<^QyC9T@V?BK|HQ0~h"
        "Jg!`cVxJgo`cJM1Rs0hHk6y&*9P+5z<q5ETMVKK1h!!x!8Tt=s;q0RHMI)#flXBmVo>wE;^$8R|Ih3Of19-0TGw4JGu`3E3|%{sAG{3=z{!BD5A"
        "HuqdAV6~HXi@)67}f90<7A+$Bw5)AwVy~r%j8zSr&>KI2e?YIr!FZw7v;0xj64h7dA3-l%0`4r^A2Px$cCn@{{L$vnb4gNC+HtygZ>JJnG68tjX"
        ")aK#$y7=DP^5*jC9|aox=Rhp=$|em1x+qHsF1RxQ1{nxY;spoP2Y~`6Dft&KQ2z%N81q2^E8rUx<H7%|^x-%a7~Kf@>+~|%tSR9tBe>e}y|l>iG"
        "vv>ZI2ShMfds?{3J^yF4;ItT?hz5=0N2PW6Bhdi_#*`r;OQCV%)|EI`03DHAF}x=3hXB9$2I^3B-5?L^!oSt*INMK|K`;rBr+(}I6G7d-#WeM3@"
        "Rx@GUF!N9M=Fm>ib9|<#7`O"
    )
}
"""Directions by recognition network. Other networks have none."""


def leave_out_coverings(vectors: NDArray[np.float32], network: str | None) -> NDArray[np.float32]:
    """Return embeddings (n d, of length 1 or 0) without these directions, rescaled to length 1 or 0."""
    directions = _read_directions(_COVERINGS, 6, network, vectors.shape[1])
    rest = vectors - (vectors @ directions) @ directions.T
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    return (rest / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def lost_detail(network: str | None, length: int) -> NDArray[np.float64]:
    """Return the directions of lost detail for embeddings of some length (d k), orthonormal."""
    return _read_directions(_BLURS, 5, network, length)


def _read_directions(stored: Mapping[str, str], count: int, network: str | None, length: int) -> NDArray[np.float64]:
    """Return orthonormal directions (d k); none for another network, or for embeddings of another length."""
    numbers = np.frombuffer(base64.b85decode(stored.get(network or "", "")), np.int8)
    fitting = numbers if numbers.size == count * length else numbers[:0]
    return np.linalg.qr(fitting.reshape(-1, length).T.astype(np.float64))[0]
