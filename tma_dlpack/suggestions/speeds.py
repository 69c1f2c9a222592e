"""How fast copies are on a card, by box: the tables that `suggest` ranks by, one per card.

Printed by ``python tests/bench tiles``: boxes copy whole tensors of 256 MiB, each with its fastest
pipeline, and the median over tensors counts. A new card is a new `Card` with what it prints there;
tests/gpu/test_suggest_on_gpu.py asks whether the table chooses well.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tma_dlpack import driver
from tma_dlpack.dlpack import Device

#: Where lines begin -> bytes of a line -> spans -> lines -> shares with each L2 fetch size.
Shares = dict[int, dict[int, dict[int, dict[int, tuple[float, ...]]]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Card:
    """One card's speeds, as shares of its memcpy.

    Attributes
    ----------
    name : str
        The name that the driver gives the GPU.
    measured : str
        On which card, by which driver, and when.
    issue_bytes : int
        A copy of fewer bytes is as slow as one of so many: a thread issues no more per second.
    table : str
        A line has where lines of the tensor begin (at multiples of 32 bytes, which memory moves at
        a time, or of 16 only), the spans that stand side by side in one copy (split_inner; 1 of a
        plain box), and the bytes of a line of the box. A column has the lines of the box; a cell
        the share of a memcpy's speed, thousandths, without L2 promotion, with 128 and with 256.
    """

    name: str
    measured: str
    issue_bytes: int
    table: str

    def shares(self, begin: int, spans: int, line_bytes: int, lines: int) -> tuple[float, ...]:
        """Return what was measured for such a box, or else the next one with less of each.

        >>> none, bytes128, bytes256 = CARDS[0].shares(32, 1, 128, 64)
        >>> none > 0.85
        True
        """
        of_width = _at_most(_parsed(self.table)[begin], line_bytes)
        return _at_most(_at_most(of_width, spans), lines)


def _at_most(of: Mapping[int, T], most: int) -> T:
    """Return the value of the largest key that is at most so much, or else of the smallest."""
    below = [key for key in of if key <= most]
    return of[max(below) if below else min(of)]


@functools.cache
def _parsed(table: str) -> Shares:
    heads, *rows = (line.split() for line in table.strip().splitlines())
    shares: Shares = {}
    for begin, spans, width, *cells in rows:
        of_width = shares.setdefault(int(begin), {}).setdefault(int(width), {})
        of_lines = of_width.setdefault(int(spans), {})
        for lines, cell in zip(heads[3:], cells, strict=True):
            if not cell.startswith("-"):
                of_lines[int(lines)] = tuple(int(share) / 1000 for share in cell.split("/"))
    return shares


def card_of(device: Device) -> tuple[Card, str | None]:
    """Return the card whose speeds count for a tensor, and the GPU's name if it is another one.

    For memory of the host, the first card of the table.
    """
    devices = driver.status().devices
    if device.is_host or device.device_id >= len(devices):
        return CARDS[0], None
    name = devices[device.device_id].name
    own = next((card for card in CARDS if card.name == name), None)
    return (own, None) if own else (CARDS[0], name)


_H200 = """
at n bytes 8
32 1 16 440/440/430
32 1 32 750/780/750
32 1 48 690/700/690
32 1 64 870/910/915
32 1 96 840/880/880
32 1 128 900/900/920
32 1 192 900/900/900
32 1 256 950/960/950
32 2 16 420/420/420
32 2 32 750/780/750
32 2 64 915/930/935
32 2 128 910/910/920
16 1 16 400/400/400
16 1 32 560/600/580
16 1 48 500/540/540
16 1 64 650/700/710
16 1 96 730/760/790
16 1 128 770/800/830
16 1 256 760/780/800
16 1 512 860/860/860
16 2 16 400/410/400
16 2 32 570/590/570
16 2 64 730/760/760
16 2 128 770/790/800
"""
_H100 = """
at n bytes           8          16          32          64         128         192         256
32 1    16 ---/---/--- ---/---/--- 516/484/465 532/512/487 519/515/502 529/531/510 506/510/499
32 1    32 ---/---/--- 791/844/822 807/869/846 831/879/853 844/884/854 848/884/851 853/886/855
32 1    48 ---/---/--- 675/708/709 669/698/701 654/680/690 630/675/682 691/727/744 630/741/654
32 1    64 825/832/837 841/871/880 867/890/901 877/897/908 900/936/939 883/907/912 909/924/920
32 1    96 845/885/882 864/889/885 869/885/873 863/883/872 875/888/877 875/917/914 879/900/886
32 1   128 866/862/881 902/899/908 899/903/915 924/926/934 921/916/925 897/904/914 890/897/907
32 1   192 883/899/919 870/878/896 890/895/910 883/886/897 885/896/899 883/893/882 877/887/879
32 1   256 921/930/918 923/925/924 935/934/935 949/941/943 934/934/931 924/925/920 933/934/932
32 1   512 922/908/919 931/934/935 955/954/951 939/938/936 939/935/934 ---/---/--- ---/---/---
32 2    16 ---/---/--- 541/543/541 547/550/548 546/551/548 520/522/519 494/498/479 475/492/474
32 2    32 778/791/787 811/892/856 821/873/857 833/877/860 839/878/863 842/879/864 842/880/863
32 2    64 926/923/923 977/977/971 971/970/975 977/980/978 922/915/920 896/910/912 890/901/913
32 2   128 958/949/959 960/970/970 970/961/973 933/933/934 904/907/911 897/903/905 897/898/908
32 3    16 ---/---/--- 491/497/491 490/501/487 482/490/478 462/479/469 399/428/419 355/379/371
32 3    32 780/833/819 800/840/826 807/846/829 807/857/835 808/857/845 745/825/818 792/839/820
32 3    64 841/853/865 751/820/850 852/843/882 866/881/875 707/716/803 847/858/857 852/877/866
32 3   128 893/892/896 888/868/901 895/897/900 900/899/908 891/892/901 ---/---/--- ---/---/---
32 4    16 522/530/525 531/535/531 535/544/538 530/534/529 503/515/506 446/475/465 403/433/418
32 4    32 821/859/859 840/880/878 847/878/880 849/888/876 848/900/877 839/887/868 829/881/868
32 4    64 978/981/980 962/980/979 970/970/974 938/941/946 911/917/922 893/900/899 899/908/934
32 4   128 956/953/957 960/953/954 924/905/903 904/904/907 895/898/903 ---/---/--- ---/---/---
32 8    16 504/513/512 520/520/517 519/524/518 516/526/515 477/497/482 412/429/421 369/386/379
32 8    32 840/877/862 843/881/871 847/884/873 847/888/874 836/874/870 823/868/858 804/855/856
32 8    64 894/913/902 873/938/935 916/907/916 900/909/916 900/907/917 ---/---/--- ---/---/---
32 16    16 502/506/511 509/512/506 515/523/512 501/507/503 466/481/471 403/425/418 370/386/377
16 1    16 ---/---/--- ---/---/--- 439/439/439 444/477/444 465/483/470 439/451/449 468/484/482
16 1    32 ---/---/--- 634/665/665 604/627/643 597/626/632 563/669/590 639/681/680 632/713/687
16 1    48 ---/---/--- 647/737/754 646/718/752 646/706/734 622/683/696 568/721/745 471/504/493
16 1    64 791/795/797 807/815/816 813/816/814 813/814/818 691/743/767 695/787/796 597/648/616
16 1    96 708/754/787 696/740/767 698/768/781 730/796/815 740/790/818 648/686/619 591/636/633
16 1   128 817/819/821 818/816/819 820/818/822 790/835/852 792/835/861 705/723/715 683/693/685
16 1   192 807/848/866 813/855/874 823/851/868 802/823/840 769/776/769 742/748/745 740/736/730
16 1   256 836/855/858 838/882/879 868/891/906 859/880/898 800/810/804 793/796/788 787/786/783
16 1   512 899/901/900 910/924/923 896/915/921 876/881/882 870/873/862 ---/---/--- ---/---/---
16 2    16 ---/---/--- 489/489/488 520/525/522 519/524/518 462/481/479 383/408/391 320/332/325
16 2    32 510/649/556 578/637/587 585/695/630 642/716/681 644/707/696 523/558/541 487/516/509
16 2    64 714/761/771 725/753/774 723/745/768 712/732/753 670/733/722 612/634/629 585/609/604
16 2   128 842/885/825 845/888/900 853/880/893 845/871/890 739/755/748 712/718/710 696/704/696
16 3    16 ---/---/--- 402/410/399 403/389/404 407/421/410 414/431/420 338/349/344 304/314/311
16 3    32 722/728/725 673/754/709 662/757/694 639/752/678 574/603/591 521/546/537 490/510/507
16 3    64 779/794/804 780/814/829 777/811/825 663/804/803 666/686/677 623/646/639 603/625/611
16 3   128 845/852/805 802/828/838 824/837/836 813/682/757 709/732/728 ---/---/--- ---/---/---
16 4    16 497/497/497 526/530/526 525/530/523 516/526/521 402/408/400 332/346/339 302/316/312
16 4    32 649/687/642 671/719/675 686/724/702 684/713/708 554/586/574 516/543/537 486/508/499
16 4    64 766/779/781 764/783/796 767/807/796 761/805/806 661/686/678 625/648/641 613/635/628
16 4   128 864/880/887 880/888/896 873/882/892 806/813/807 745/755/754 ---/---/--- ---/---/---
16 8    16 524/527/521 517/526/517 521/532/524 464/486/473 392/409/403 344/357/353 314/328/323
16 8    32 716/745/712 717/744/725 707/722/720 640/658/649 560/589/584 525/556/548 511/530/524
16 8    64 815/838/837 815/841/841 816/840/846 731/750/755 672/690/693 ---/---/--- ---/---/---
16 16    16 518/524/517 518/531/518 500/510/499 472/487/477 406/428/422 359/375/370 326/338/335
"""

CARDS = (
    Card("NVIDIA H200", "H200, driver 580.159.04, 2026-11-22", 560, _H200),
    Card("NVIDIA H100 80GB HBM3", "H100, driver 580.159.04, 2026-11-22", 370, _H100),
)
